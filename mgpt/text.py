"""Sentences that a person reads, ready for translation by gettext.

`_("…")` is translated where it stands; `N_("…")` marks a sentence that is stored now and translated when shown.
"""

import gettext
from pathlib import Path

_catalogue = gettext.translation("mgpt", Path(__file__).parent / "locale", fallback=True)
_ = _catalogue.gettext


def N_(sentence):
    """The sentence itself, marked for extraction."""
    return sentence
