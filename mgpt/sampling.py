"""Logits -> token: a sampler maps one row of logits (V,) to an int."""

import numpy as np

from mgpt.validate import array, finite, integer


def greedy(logits):
    """The id of the largest logit, the first of equals.  ValueError when a logit is NaN."""
    logits = _row(logits)
    token = int(np.argmax(logits))
    if np.isnan(logits[token]):  # argmax stops at the first NaN
        raise ValueError(f"logits must not be NaN, got NaN at id {token}")
    return token


def probabilities(logits, temperature=1.0, top_k=None, top_p=None):
    """The distribution (V,) that `sample` draws from.

    Temperature first; then only the top_k largest logits (the first of equals); then the fewest of those,
    largest first, whose renormalised probabilities reach top_p (nucleus sampling, Holtzman et al. 2019).
    ValueError for temperature <= 0, top_k < 1, top_p outside (0, 1], NaN.
    """
    logits = _row(logits).astype(np.float64)
    if np.isnan(logits).any() or not np.isfinite(logits.max()):
        raise ValueError("logits must have a finite maximum and no NaN")
    temperature = finite("temperature", temperature, above=0)
    with np.errstate(over="ignore"):  # a far logit over a tiny temperature is -inf: probability 0
        scaled = (logits - logits.max()) / temperature
    order = np.argsort(-scaled, kind="stable")
    if top_k is not None:
        order = order[: integer("top_k", top_k, at_least=1)]
    weights = np.exp(scaled[order])
    if top_p is not None:
        if finite("top_p", top_p, above=0) > 1:
            raise ValueError(f"top_p must be in (0, 1], got {top_p!r}")
        reached = np.cumsum(weights) / weights.sum() >= top_p
        # top_p = 1 keeps all; rounding of the last sum must not drop any.
        keep = len(order) if top_p == 1 or not reached.any() else int(np.argmax(reached)) + 1
        order, weights = order[:keep], weights[:keep]
    result = np.zeros(len(logits))
    result[order] = weights / weights.sum()
    return result


def sample(logits, rng, temperature=1.0, top_k=None, top_p=None):
    """One id drawn from `probabilities(...)` with one uniform number of `rng` (a numpy.random.Generator)."""
    return draw(probabilities(logits, temperature, top_k, top_p), rng)


def draw(probs, rng):
    """One id drawn from the distribution probs (V,)
    with one uniform number of `rng`.
    """
    cumulative = np.cumsum(probs)
    # Scaled to the last sum, which rounding leaves a hair off 1;
    # side="right" never lands on a zero probability.
    return int(np.searchsorted(cumulative, checked_rng(rng).random() * cumulative[-1],
                               side="right"))


def checked_rng(rng):
    """`rng`, unchanged.  ValueError unless it is a numpy.random.Generator."""
    if not isinstance(rng, np.random.Generator):
        raise ValueError(f"rng must be a numpy.random.Generator, got {type(rng).__name__}")
    return rng


def _row(logits):
    logits = array("logits", logits)
    if logits.ndim != 1 or logits.size == 0:
        raise ValueError(f"logits must be one row (V,), got shape {logits.shape}")
    return logits
