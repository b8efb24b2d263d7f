"""The two generators: the slow one that is plainly right, and the one with a KV cache.

P prompt positions, N = max_new_tokens, G outputs chosen so far (G < N when a stop id ends the text).
"""

from collections.abc import Iterable

import numpy as np

from mgpt.cache import KVCache
from mgpt.model import checked_ids, forward
from mgpt.sampling import greedy
from mgpt.validate import array, integer


class Generation:
    """Tokens as they are chosen.  Iterate to watch them come; what was chosen is kept and can be read again.

    .tokens  list of ints, the stop id included      .positions_processed  positions that passed through the layers
    .logits  the row (V,) each token was chosen from .cache_len  positions the cache holds, None without a cache
    Reading one of these before any iteration runs the generation to its end.
    """

    def __init__(self, steps, cache_len=None):
        self._steps = steps  # yields (token, logits, positions of this pass, cache_len)
        self._started = False
        self._tokens, self._logits, self._positions, self._cache_len = [], [], 0, cache_len

    def __iter__(self):
        index = 0
        while index < len(self._tokens) or self._advance():
            yield self._tokens[index]
            index += 1

    def __next__(self):
        if not self._advance():
            raise StopIteration
        return self._tokens[-1]

    def _advance(self):
        self._started = True
        step = next(self._steps, None)
        if step is None:
            return False
        token, logits, positions, self._cache_len = step
        self._tokens.append(token)
        self._logits.append(logits)
        self._positions += positions
        return True

    def _results(self):
        if not self._started:
            for _ in self:
                pass
        return self

    @property
    def tokens(self):
        return self._results()._tokens

    @property
    def logits(self):
        return self._results()._logits

    @property
    def positions_processed(self):
        return self._results()._positions

    @property
    def cache_len(self):
        return self._results()._cache_len


def generate_full_prefix(params, config, prompt_ids, max_new_tokens, *, sampler=greedy,
                         stop_ids=()):
    """A Generation that runs the whole growing prefix
    through the model for every token.

    The simplest correct generator, and the oracle of the others: P + (P + 1) + …
    positions are processed.
    ValueError: ids that are none of the vocabulary, an empty prompt, or
    P + max_new_tokens - 1 > max_seq_len.
    """
    prompt, n_new = checked_request(config, prompt_ids, max_new_tokens)
    stop_ids = _checked_stops(stop_ids)

    def steps():
        ids = list(prompt)
        for _ in range(n_new):
            logits = forward(params, config, np.array(ids), last_only=True)
            token = _chosen(sampler, logits)
            yield token, logits, len(ids), None
            if token in stop_ids:
                return
            ids.append(token)

    return Generation(steps())


def prefill(params, config, ids, cache, chunk_size=None):
    """Process all prompt ids, at once or in chunks of `chunk_size`; the logits (V,) of the last position."""
    ids = checked_ids(ids, config.vocab_size)  # all of them, before the first chunk is kept
    n = ids.shape[-1]
    size = n if chunk_size is None else integer("chunk_size", chunk_size, at_least=1)
    for start in range(0, n, size):
        logits = forward(params, config, ids[..., start : start + size], cache, last_only=True)
    return logits


def decode_one_token(params, config, token, cache):
    """Process one chosen token behind what the cache holds;
    the logits (V,) for the next one.
    """
    return forward(params, config, np.array([token]), cache, last_only=True)


def generate_cached(params, config, prompt_ids, max_new_tokens, *, sampler=greedy, stop_ids=(), cache=None,
                    chunk_size=None):
    """A Generation from one prefill and then one decode pass a token.

    cache: None (a KVCache that fits is made) or any cache of the seam; what it already holds counts as the
    beginning of the text, and prompt_ids follow it.  At the end it holds P + G - 1 positions more: the last
    output has been chosen, not processed.
    ValueError: ids that are none of the vocabulary, an empty prompt, or more than max_seq_len positions in all.
    """
    n_past = 0 if cache is None else cache.seq_len
    prompt, n_new = checked_request(config, prompt_ids, max_new_tokens, n_past)
    stop_ids = _checked_stops(stop_ids)
    if chunk_size is not None:
        integer("chunk_size", chunk_size, at_least=1)
    if cache is None:
        cache = KVCache(config, len(prompt) + max(n_new, 1) - 1)

    def steps():
        if n_new == 0:
            return
        logits, processed = prefill(params, config, prompt, cache, chunk_size), len(prompt)
        for n_chosen in range(1, n_new + 1):
            token = _chosen(sampler, logits)
            yield token, logits, processed, cache.seq_len
            if token in stop_ids or n_chosen == n_new:
                return
            logits, processed = decode_one_token(params, config, token, cache), 1

    return Generation(steps(), n_past)


def _chosen(sampler, logits):
    token = integer("the sampler's token", sampler(logits))
    if token >= len(logits):
        raise ValueError(f"the sampler's token must be below the vocabulary's {len(logits)}, got {token}")
    return token


def _checked_stops(stop_ids):
    if not isinstance(stop_ids, Iterable) or isinstance(stop_ids, str) or getattr(stop_ids, "ndim", 1) == 0:
        raise ValueError(f"stop_ids must be a collection of ids, got {stop_ids!r}")
    return frozenset(integer("each of stop_ids", stop) for stop in stop_ids)


def checked_request(config, prompt_ids, max_new_tokens, n_past=0):
    """(prompt as an array of its own, number of outputs).  ValueError as the generators document it."""
    prompt = array("prompt_ids", prompt_ids, what="integers").copy()
    if prompt.ndim != 1 or prompt.size == 0:
        raise ValueError(f"prompt_ids must be a sequence of at least one id, got shape {prompt.shape}")
    checked_ids(prompt, config.vocab_size, "prompt_ids")
    n_new = integer("max_new_tokens", max_new_tokens)
    need = n_past + len(prompt) + n_new - 1
    if need > config.max_seq_len:
        raise ValueError(f"{n_past + len(prompt)} prompt positions and max_new_tokens = {n_new} need {need} positions; "
                         f"max_seq_len is {config.max_seq_len}")
    return prompt, n_new
