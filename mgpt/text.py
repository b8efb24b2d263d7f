"""Sentences that a person reads, ready for translation by gettext.

`_("…")` is translated where it stands; `N_("…")` marks a sentence that is stored now and translated when shown.
The language is the environment's LANGUAGE, as gettext has it; catalogues are mgpt/locale/LANGUAGE/LC_MESSAGES/mgpt.mo.
"""

import gettext
from pathlib import Path

_catalogue = gettext.translation("mgpt", Path(__file__).parent / "locale", fallback=True)


def _(sentence):
    """The sentence in the reader's language; itself where the catalogue has none."""
    return _catalogue.gettext(sentence) if sentence else sentence  # gettext's entry for "" is the catalogue's header


def N_(sentence):
    """The sentence itself, marked for extraction."""
    return sentence
