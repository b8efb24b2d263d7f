"""How close a greedy decision was, and what a change of the model's numbers did to it.

Shapes: a row of logits is (V,); `before` and `after` are rows in the order of the decisions, one a chosen token.
"""

import importlib.resources
import json
from dataclasses import dataclass

import numpy as np

from mgpt.sampling import greedy
from mgpt.validate import integer


def lead(logits, token):
    """The logit of `token` minus the largest of all others, a float:
    negative where another token leads.

    0.0 is a tie, which the order of the vocabulary decides.
    ValueError: fewer than two logits, NaN or infinity among them, or a token that is
    none of theirs.
    """
    logits = np.asarray(logits)
    if logits.ndim != 1 or len(logits) < 2 or not np.isfinite(logits).all():
        raise ValueError("logits must be one row of at least two finite numbers, "
                         f"got shape {logits.shape}")
    if integer("token", token) >= len(logits):
        raise ValueError(f"token must be in 0 .. {len(logits) - 1}, got {token}")
    return float(logits[token] - np.delete(logits, token).max())


def margin(logits):
    """The lead of the greedy choice, a float of at least 0.0."""
    return lead(logits, greedy(logits))


@dataclass(frozen=True)
class Decision:
    """One choice, before and after a change.

    token, margin: what was chosen before, and its lead then.  token_after: what is chosen after.  lead_after: the
    lead that `token` has after; negative, or 0.0 in a tie, where another was chosen.
    """

    token: int
    margin: float
    token_after: int
    lead_after: float

    @property
    def changed(self):
        """True where the choice is another one."""
        return self.token != self.token_after


def decisions(before, after):
    """The Decisions of two greedy runs of one prompt, as a list, up to the first that changed, that one included.

    Behind a changed choice the two runs read different inputs, so their logits answer different questions.
    ValueError: runs of unequal length, or a row that `lead` refuses.
    """
    before, after = list(before), list(after)
    if len(before) != len(after):
        raise ValueError(f"before and after must have one row a decision, got {len(before)} and {len(after)} rows")
    found = []
    for old, new in zip(before, after):
        token = greedy(old)
        found.append(Decision(token, lead(old, token), greedy(new), lead(new, token)))
        if found[-1].changed:
            break
    return found


def hard_results():
    """What `mgpt evaluate --hard --json` printed, a dict: one row for each way of storing MG-2's numbers.

    Kept as a file because all 1,344 questions take a while.
    """
    text = (importlib.resources.files("mgpt") / "data" / "mg2_hard.json").read_text(encoding="utf-8")
    return json.loads(text)
