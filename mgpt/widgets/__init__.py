"""Figures and live controls: pure functions from a state to a picture, one file a control.

`respond` is all that the page's script knows; JupyterLab shows a control as a cell's last value.
"""

import importlib


def load(name):
    """The Control of a module of this folder.  ValueError for another name."""
    try:
        return importlib.import_module(f"mgpt.widgets.{name}").CONTROL
    except (ImportError, AttributeError):
        raise ValueError(f"no control {name!r}") from None


def respond(name, state, action=None):
    """What a page shows after a change: {"state": the whole state, "html": the view}.

    `action` is one of the control's own actions, or None where an input changed.  A wrong input keeps the state
    as it was given, and the view says what is wrong.
    """
    found = load(name)
    try:
        state = found.act(action, state) if action else found.read(state)
    except ValueError:
        pass
    return {"state": state, "html": found.view_html(state)}
