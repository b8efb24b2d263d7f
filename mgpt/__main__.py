"""`python -m mgpt`."""

import sys

from mgpt.cli import main

sys.exit(main())
