"""Speculative decoding: a draft model guesses, one pass of the target checks (Leviathan et al. 2023).

Shapes: γ = gamma guesses a round, V vocab_size.  q is the draft's distribution (V,), p the target's.
P prompt positions, N = max_new_tokens, G outputs chosen so far.
"""

from dataclasses import dataclass

import numpy as np

from mgpt.cache import KVCache
from mgpt.generate import Generation, checked_request, prefill
from mgpt.model import checked_ids, forward
from mgpt.sampling import checked_rng, draw, greedy, probabilities, sample
from mgpt.validate import array, finite, integer

SUM_TOLERANCE = 1e-6  # a softmax in float32 sums to 1 no better than this


@dataclass(frozen=True)
class Round:
    """One pass of the target: guesses it checked, guesses it accepted.  It gives accepted + 1 tokens."""
    drafted: int
    accepted: int


class SpeculativeGeneration(Generation):
    """A Generation with .rounds, one Round for every pass of the target after the prefill."""

    def __init__(self, steps, rounds):
        super().__init__(steps, cache_len=0)
        self._rounds = rounds

    @property
    def rounds(self):
        return self._results()._rounds


def accept_probability(q, p):
    """min(1, p/q): how often a guess is kept; q > 0 is the draft's probability, p the target's."""
    return 1.0 if p >= q else float(p / q)


def residual(q, p):
    """max(p - q, 0), normalised: what a rejected guess is replaced from.  q, p (V,) -> (V,).

    Where nothing is left (p = q, up to rounding) nothing is rejected, and p itself is returned.
    """
    left = np.maximum(np.subtract(p, q), 0.0)
    total = left.sum()
    return left / total if total > 0 else np.divide(p, np.sum(p))


def verify(draft_tokens, draft_probs, target_probs, rng):
    """(accepted_tokens, next_token): the guesses that are kept, as a list, and the token that follows them.

    draft_tokens: γ ids, each drawn from its row of draft_probs (γ, V); target_probs (γ + 1, V); rng a
    numpy.random.Generator.  Guess i is kept with probability min(1, p/q).  The first that is not is replaced
    from max(p - q, 0), normalised; when all are kept, the next token is drawn from the target's row γ.  So every
    token is distributed as if drawn from the target (Leviathan et al. 2023, appendix A.1).
    ValueError: rows that are no distributions over one vocabulary, a guess of probability 0 in its own row.
    """
    q, p = array("draft_probs", draft_probs), _distributions("target_probs", target_probs, 2)
    q = p[:0] if q.shape == (0,) else _distributions("draft_probs", q, 2)  # an empty list cannot say (0, V)
    if q.shape != (len(p) - 1, p.shape[1]):
        raise ValueError(f"draft_probs must be (γ, V), target_probs (γ + 1, V), got {q.shape} and {p.shape}")
    tokens = array("draft_tokens", draft_tokens, what="integers")
    if tokens.shape != (len(q),):
        raise ValueError(f"draft_tokens must be {len(q)} ids, one for a row, got shape {tokens.shape}")
    tokens = checked_ids(tokens, p.shape[1], "draft_tokens").tolist() if len(q) else []
    for i, token in enumerate(tokens):
        if q[i, token] == 0:
            raise ValueError(f"draft_tokens[{i}] = {token} has probability 0 in its row of draft_probs")
    checked_rng(rng)
    for i, token in enumerate(tokens):
        if rng.random() >= accept_probability(q[i, token], p[i, token]):
            return tokens[:i], draw(residual(q[i], p[i]), rng)
    return tokens, draw(p[-1], rng)


def exact_distribution(draft_probs, target_probs):
    """The distribution (V,) of the first token that `verify` gives, for q (V,) and p (V,).

    Summed over every path: each guess the draft can make, accepted, or rejected and replaced by each token.
    It equals target_probs: that is the theorem, here as arithmetic.  ValueError as in `verify`.
    """
    q, p = _one_position(draft_probs, target_probs)
    replacement, emitted = residual(q, p), np.zeros(len(p))
    for guess in np.flatnonzero(q):
        accepted = accept_probability(q[guess], p[guess])
        emitted[guess] += q[guess] * accepted
        emitted += q[guess] * (1 - accepted) * replacement
    return emitted


def acceptance_rate(draft_probs, target_probs):
    """Σ min(p, q), the probability that a guess drawn from q (V,) is kept under p (V,): a float in 0 .. 1."""
    return float(np.minimum(*_one_position(draft_probs, target_probs)).sum())


def expected_tokens(alpha, gamma):
    """Mean tokens a round, (1 - α^(γ+1)) / (1 - α), where each guess is kept with probability α (equation 1)."""
    if finite("alpha", alpha, at_least=0) > 1:
        raise ValueError(f"alpha must be in 0 .. 1, got {alpha!r}")
    return float(sum(alpha**i for i in range(integer("gamma", gamma) + 1)))  # the same, also right at α = 1


def expected_speedup(alpha, gamma, cost):
    """Tokens a unit of time against plain decoding; a draft pass takes `cost` of a target pass (theorem 3.8).

    Below 1 it does not pay.  Assumed: a target pass over γ + 1 positions takes as long as one over 1.
    """
    return expected_tokens(alpha, gamma) / (gamma * finite("cost", cost, at_least=0) + 1)


def speculative_generate(target, draft, prompt_ids, max_new_tokens, *, gamma, rng=None, cache=None):
    """A SpeculativeGeneration of the target's text, with `gamma` guesses of the draft checked in each pass.

    target and draft are (params, config) pairs over one vocabulary.  rng None decodes greedily, the tokens of
    `generate_cached`; a numpy.random.Generator samples from the target's softmax, and guesses by the same rng.
    .logits are the target's rows.  .positions_processed counts the target's positions: the prompt, and in each
    round its guesses, kept or not, and one.  What is rejected is cut off both caches: P + G - 1 at the end.
    cache: None, or any empty cache of the seam with room for P + N - 1 positions, for the target.
    ValueError: as `generate_cached` (both models need P + N - 1 positions), gamma < 1, or two vocabularies.
    """
    (params, config), draft = _pair("target", target), _pair("draft", draft)
    if draft[1].vocab_size != config.vocab_size:
        raise ValueError(f"draft must have the target's vocabulary of {config.vocab_size}, got {draft[1].vocab_size}")
    gamma, rng = integer("gamma", gamma, at_least=1), None if rng is None else checked_rng(rng)
    prompt, n_new = checked_request(config, prompt_ids, max_new_tokens)
    checked_request(draft[1], prompt, n_new)
    capacity = len(prompt) + max(n_new, 1) - 1
    draft_cache, cache = KVCache(draft[1], capacity), KVCache(config, capacity) if cache is None else cache
    if cache.seq_len:
        raise ValueError(f"cache must be empty (the draft has not seen it), got {cache.seq_len} positions")
    rounds = []

    def choose(row):
        return greedy(row) if rng is None else sample(row, rng)

    def steps():
        if n_new == 0:
            return
        logits = prefill(params, config, prompt, cache)
        text = [int(token) for token in prompt] + [choose(logits)]
        yield text[-1], logits, len(prompt), cache.seq_len
        while (left := len(prompt) + n_new - len(text)) > 0:
            guesses, guess_rows = _guess(*draft, text, min(gamma, left - 1), draft_cache, choose)
            rows = forward(params, config, [text[-1], *guesses], cache)  # (γ + 1, V)
            if rng is None:
                accepted, token = _verify_greedy(guesses, rows)
            else:
                q, p = ([probabilities(row) for row in some] for some in (guess_rows, rows))
                accepted, token = verify(guesses, np.reshape(q, (len(q), config.vocab_size)), p, rng)
            text += [*accepted, token]
            for kept in (cache, draft_cache):  # the last token is chosen, not processed
                kept.truncate(min(kept.seq_len, len(text) - 1))
            rounds.append(Round(len(guesses), len(accepted)))
            for i, token in enumerate([*accepted, token]):
                yield token, rows[i], 0 if i else len(rows), cache.seq_len

    return SpeculativeGeneration(steps(), rounds)


def _guess(params, config, text, n, cache, choose):
    """n guesses behind `text` and their logits; the first pass takes all of the text that is not yet cached."""
    guesses, rows = [], []
    for _ in range(n):
        rows.append(forward(params, config, (text + guesses)[cache.seq_len :], cache, last_only=True))
        guesses.append(choose(rows[-1]))
    return guesses, rows


def _verify_greedy(guesses, rows):
    tokens = [greedy(row) for row in rows]
    n = next((i for i, guess in enumerate(guesses) if guess != tokens[i]), len(guesses))
    return guesses[:n], tokens[n]


def _pair(name, model):
    if not isinstance(model, (tuple, list)) or len(model) != 2:
        raise ValueError(f"{name} must be a pair (params, config), got {type(model).__name__}")
    return model


def _distributions(name, probs, ndim):
    probs = array(name, probs).astype(np.float64)
    if probs.ndim != ndim or probs.shape[-1] == 0:
        raise ValueError(f"{name} must be {'(V,)' if ndim == 1 else 'rows of (V,)'}, got shape {probs.shape}")
    if not ((probs >= 0).all() and (np.abs(probs.sum(axis=-1) - 1) <= SUM_TOLERANCE).all()):
        raise ValueError(f"{name} must be numbers >= 0 that sum to 1 over the vocabulary, "
                         f"got sums {probs.sum(axis=-1)}, lowest {probs.min()}")
    return probs


def _one_position(draft_probs, target_probs):
    q, p = _distributions("draft_probs", draft_probs, 1), _distributions("target_probs", target_probs, 1)
    if q.shape != p.shape:
        raise ValueError(f"draft_probs and target_probs must be of one length, got {q.shape} and {p.shape}")
    return q, p
