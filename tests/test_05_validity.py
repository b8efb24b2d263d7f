"""The checks of 05 are worth their points, and its control shows what the engine's own caches do.

Answers are learner's code, written here without looking at the checks' own formulas.
"""

import json
import os

import numpy as np
import pytest
from exercise_lists import install, spoil

from mgpt.cache import KVCache
from mgpt.checkpoint import load_mg2
from mgpt.course.questions import find
from mgpt.model import forward
from mgpt.policy import TRAVEL_PROMPT_BEFORE
from mgpt.widgets import load
from mgpt.widgets.reusable_prefix import CHANGES, compare

STEM = "05_validity"
NEW_TEXT = TRAVEL_PROMPT_BEFORE.replace("600", "750")


# ------------------------------------------------------------------ right answers, written differently
def q1_with_a_loop(cached_ids, new_ids):
    keep = 0
    for a, b in zip(cached_ids, new_ids):
        if a != b:
            break
        keep += 1
    if keep == len(new_ids):
        keep -= 1
    return {"keep": keep, "forget": len(cached_ids) - keep, "compute": len(new_ids) - keep}


def q1_with_numpy(cached_ids, new_ids):
    n = min(len(cached_ids), len(new_ids) - 1)
    same = np.array(cached_ids[:n]) == np.array(new_ids[:n])
    keep = n if same.all() else int(same.argmin())
    return dict(compute=len(new_ids) - keep, keep=keep, forget=len(cached_ids) - keep)


def q1_by_slices(cached_ids, new_ids):
    keep = max(n for n in range(len(new_ids)) if n <= len(cached_ids) and cached_ids[:n] == new_ids[:n])
    return {"keep": keep, "forget": len(cached_ids[keep:]), "compute": len(new_ids[keep:])}


def q2_with_a_loop(prompt_ids, output_ids, next_ids):
    held = [*prompt_ids]
    for output in output_ids[: len(output_ids) - 1]:
        held.append(output)
    keep = 0
    while keep < len(held) and keep < len(next_ids) - 1 and held[keep] == next_ids[keep]:
        keep += 1
    return {"in_cache": len(held), "keep": keep}


def q2_with_commonprefix(prompt_ids, output_ids, next_ids):
    held = (prompt_ids + output_ids)[:-1]
    return {"keep": len(os.path.commonprefix([held, next_ids[:-1]])), "in_cache": len(prompt_ids) + len(output_ids) - 1}


def q2_by_q1(prompt_ids, output_ids, next_ids):
    held = list(prompt_ids) + list(output_ids)
    held.pop()
    return {"in_cache": len(held), "keep": q1_by_slices(held, next_ids)["keep"]}


def q3_with_numpy(old_k, old_v, new_k, new_v, tolerance):
    gap = np.abs(np.array([new_k, new_v]) - np.array([old_k, old_v])).max(axis=(0, 1))
    where = np.flatnonzero(gap > tolerance)
    first = int(where[0]) if len(where) else None
    return {"first": first, "keep": len(gap) if first is None else first}


def q3_by_columns(old_k, old_v, new_k, new_v, tolerance):
    before, after = zip(*old_k, *old_v, strict=False), zip(*new_k, *new_v, strict=False)
    n = 0
    for a, b in zip(before, after):
        if max(abs(x - y) for x, y in zip(a, b)) > tolerance:
            return {"first": n, "keep": n}
        n += 1
    return {"first": None, "keep": n}


def q3_layer_by_layer(old_k, old_v, new_k, new_v, tolerance):
    keep = len(old_k[0])
    for old, new in ((old_k, new_k), (old_v, new_v)):
        for layer in range(len(old)):
            for i in range(keep):
                if abs(old[layer][i] - new[layer][i]) > tolerance:
                    keep = i
                    break
    return {"first": None if keep == len(old_k[0]) else keep, "keep": keep}


def q4_with_json(setups):
    names = ("weights", "adapter", "words", "offset", "window")
    keys = [json.dumps([setup[name] for name in names]) for setup in setups]
    return [keys.index(key) for key in keys]


def q4_with_a_dict(setups):
    first, result = {}, []
    for i, setup in enumerate(setups):
        rest = tuple(sorted((k, str(v)) for k, v in setup.items() if k not in ("temperature", "outputs")))
        result.append(first.setdefault(rest, i))
    return result


def q4_by_comparing(setups):
    def same(a, b):
        return all(a[name] == b[name] for name in a if name not in {"temperature", "outputs"})

    return [next(j for j, other in enumerate(setups) if same(other, setup)) for setup in setups]


RIGHT = {
    "q1": [q1_with_a_loop, q1_with_numpy, q1_by_slices],
    "q2": [q2_with_a_loop, q2_with_commonprefix, q2_by_q1],
    "q3": [q3_with_numpy, q3_by_columns, q3_layer_by_layer],
    "q4": [q4_with_json, q4_with_a_dict, q4_by_comparing],
}


# ------------------------------------------------------------------ known wrong answers
def front(a, b):
    return len(os.path.commonprefix([a, b]))


def kept(rule):
    def answer(c, n):
        k = rule(c, n)
        return {"keep": k, "forget": len(c) - k, "compute": len(n) - k}

    return answer


def capped(rule):
    return kept(lambda c, n: min(rule(c, n), len(n) - 1))


def holding(rule):
    def answer(p, o, f):
        held = rule(p, o)
        return {"in_cache": len(held), "keep": min(front(held, f), len(f) - 1)}

    return answer


def keeping(rule):
    return lambda p, o, f: {"in_cache": len(p) + len(o) - 1, "keep": rule(p, o, f)}


def differing(rule, choose=lambda found: found[0]):
    """rule(K gaps, V gaps, tolerance) of one position, each a list over layers of new - old."""
    def answer(old_k, old_v, new_k, new_v, tolerance):
        gaps = np.array([new_k, new_v]) - np.array([old_k, old_v])  # (2, L, S)
        found = [i for i in range(gaps.shape[-1]) if rule(gaps[0, :, i], gaps[1, :, i], tolerance)]
        return {"first": choose(found) if found else None, "keep": choose(found) if found else gaps.shape[-1]}

    return answer


def grouped(key):
    def answer(setups):
        keys = [key(dict(setup)) for setup in setups]
        return [keys.index(one) for one in keys]

    return answer


def without(*names):
    return grouped(lambda s: json.dumps({k: v for k, v in s.items() if k not in (*names, "temperature", "outputs")}))


def changed(**rules):
    return grouped(lambda s: json.dumps({k: rules.get(k, lambda v: v)(v) for k, v in s.items()
                                         if k not in ("temperature", "outputs")}))


q1, q3 = q1_with_a_loop, q3_with_numpy
WRONG = {
    "q1": {
        "full hit keeps all": kept(front),
        "equal anywhere": capped(lambda c, n: sum(map(int.__eq__, c, n))),
        "equal as sets": capped(lambda c, n: len({*c} & {*n})),
        "common end": capped(lambda c, n: front(list(reversed(c)), list(reversed(n)))),
        "the changed one kept": capped(lambda c, n: front(c, n) + 1),
        "one too few": kept(lambda c, n: max(front(c, n), 1) - 1),
        "length only": capped(lambda c, n: len(c)),
        "all or nothing": capped(lambda c, n: len(c) if front(c, n) == len(c) else 0),
        "forgotten counted in the new text": spoil(q1, forget=lambda r, c, n: len(n) - r["keep"]),
        "computed counted in the cache": spoil(q1, compute=lambda r, c, n: len(c) - r["keep"]),
        "computed all": spoil(q1, compute=lambda r, c, n: len(n)),
    },
    "q2": {
        "last output in the cache": holding(lambda p, o: p + o),
        "prompt only": holding(lambda p, o: p),
        "first output missing": holding(lambda p, o: p + o[1:]),
        "one too few in the cache": holding(lambda p, o: [*p, *o][: len(p) + len(o) - 2]),
        "outputs only": holding(lambda p, o: o),
        "all kept": keeping(lambda p, o, f: min(len(p) + len(o) - 1, len(f) - 1)),
        "prompt kept": keeping(lambda p, o, f: min(front(p, f), len(f) - 1)),
        "full hit keeps all": keeping(lambda p, o, f: front(p + o[:-1], f)),
        "equal anywhere": keeping(lambda p, o, f: min(len(f) - 1, sum(map(int.__eq__, p + o[:-1], f)))),
        "one too few kept": keeping(lambda p, o, f: max(0, min(front(p + o[:-1], f), len(f) - 1) - 1)),
    },
    "q3": {
        "first layer only": differing(lambda k, v, t: max(abs(k[0]), abs(v[0])) > t),
        "last layer only": differing(lambda k, v, t: max(abs(k[-1]), abs(v[-1])) > t),
        "all layers at once": differing(lambda k, v, t: (np.maximum(abs(k), abs(v)) > t).all()),
        "K only": differing(lambda k, v, t: (abs(k) > t).any()),
        "V only": differing(lambda k, v, t: (abs(v) > t).any()),
        "K and V both": differing(lambda k, v, t: (abs(k) > t).any() and (abs(v) > t).any()),
        "no tolerance": differing(lambda k, v, t: k.any() or v.any()),
        "sign kept": differing(lambda k, v, t: max(k.max(), v.max()) > t),
        "old minus new": differing(lambda k, v, t: min(k.min(), v.min()) < -t),
        "last difference": differing(lambda k, v, t: max(abs(k).max(), abs(v).max()) > t, lambda found: found[-1]),
        "counted from one": spoil(q3, first=lambda r, *a: None if r["first"] is None else r["first"] + 1),
        "zero for none": spoil(q3, first=lambda r, *a: 0 if r["first"] is None else r["first"]),
        "length for none": spoil(q3, first=lambda r, *a: r["keep"]),
        "one too many kept": spoil(q3, keep=lambda r, *a: r["keep"] if r["first"] is None else r["keep"] + 1),
        "nothing kept without a difference": spoil(q3, keep=lambda r, *a: 0 if r["first"] is None else r["keep"]),
    },
    "q4": {
        "weights left out": without("weights"),
        "weights added up": changed(weights=sum),
        "weights sorted": changed(weights=sorted),
        "shape only": changed(weights=len),
        "adapter left out": without("adapter"),
        "words left out": without("words"),
        "words as a set": changed(words=lambda w: sorted(set(w))),
        "words run together": changed(words="".join),
        "offset left out": without("offset"),
        "window left out": without("window"),
        "temperature included": grouped(lambda s: str([v for k, v in s.items() if k != "outputs"])),
        "outputs included": grouped(lambda s: str([v for k, v in s.items() if k != "temperature"])),
        "everything included": grouped(str),
    },
}

install(globals(), STEM, RIGHT, WRONG)


def test_the_chapters_own_change_is_a_visible_case():
    """The ids of "limit for hotel is 600. …", with 6 and 5 changed, share four ids."""
    case = find(f"{STEM}.q1").cases[0]
    assert case.expected == {"keep": 4, "forget": 4, "compute": 4}


# ------------------------------------------------------------------ the control
def kv_of(ids, **options):
    params, config, _tokenizer = load_mg2()
    cache = KVCache(config, len(ids))
    forward(options.pop("params", params), config, np.array(ids), cache, **options)
    return np.stack([cache._k, cache._v])  # (2, L, K, S, D)


@pytest.mark.parametrize("new_text, keep, first", [
    (NEW_TEXT, 4, 4), (TRAVEL_PROMPT_BEFORE, 29, None), (TRAVEL_PROMPT_BEFORE + " 7", 30, None),
    (TRAVEL_PROMPT_BEFORE.replace("taxi", "tram"), 18, 18), ("for" + TRAVEL_PROMPT_BEFORE[5:], 0, 0), ("limit", 0, None)])
def test_the_control_keeps_what_is_equal_and_measures_where_kv_differ(new_text, keep, first):
    old, new, kept_positions, found = compare(TRAVEL_PROMPT_BEFORE, new_text, "none")
    assert (kept_positions, found) == (keep, first)
    n = min(len(old), len(new))
    gap = np.abs(kv_of(old)[:, :, :, :n] - kv_of(new)[:, :, :, :n]).max(axis=(0, 1, 2, 4))
    assert (gap[:keep] <= 1e-9).all() and (first is None or gap[first] > 1e-9)


@pytest.mark.parametrize("change, first", [
    ("weights", 0), ("adapter", 0), ("ids", 0), ("positions", 0), ("attention", 8), ("tenant", None)])
def test_every_other_change_keeps_nothing_of_an_equal_text(change, first):
    old, new, kept_positions, found = compare(TRAVEL_PROMPT_BEFORE, TRAVEL_PROMPT_BEFORE, change)
    assert (kept_positions, found) == (0, first)
    assert (old == new) == (change != "ids")
    view = load("reusable_prefix").view({"cached": TRAVEL_PROMPT_BEFORE, "new": TRAVEL_PROMPT_BEFORE, "change": change})
    assert {row[2] for row in view.rows} == {"computed"} and {row[3] for row in view.rows} == {CHANGES[change]}


def test_each_run_of_positions_in_the_table_says_why():
    def rows(old, new):
        return load("reusable_prefix").view({"cached": old, "new": new, "change": "none"}).rows

    assert rows(TRAVEL_PROMPT_BEFORE, NEW_TEXT) == (
        ("0–3", "limit for hotel is", "kept", "all ids up to here are equal"), ("4–5", "75", "computed", "another id"),
        ("6–29", "0." + NEW_TEXT[len("limit for hotel is 750."):], "computed", "an id before it differs"))
    assert rows(NEW_TEXT, NEW_TEXT)[-1] == ("29", ":", "computed", "the last position gives the logits")
    assert rows(NEW_TEXT, NEW_TEXT + " 7")[-1] == ("30", "7", "computed", "not in the cache")


def test_texts_without_a_token_or_too_long_get_a_sentence():
    control = load("reusable_prefix")
    assert "at least one token" in control.view_html({"new": "  "})
    assert "at most 80 tokens" in control.view_html({"new": "7 " * 81})
