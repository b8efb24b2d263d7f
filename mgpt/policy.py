"""The policy-update task: a travel assistant's limits, some of them raised later, and questions about them.

  limit for hotel is 600. limit for taxi is 150. update: limit for hotel is 750. limit for hotel? answer: 750

The latest line about an item wins.  Every (item, value) pair belongs to one split, and a prompt states pairs
of its own split alone.  So no evaluation prompt was trained on, or can be used to choose a scale.
"""

from dataclasses import dataclass

import numpy as np

from mgpt.tokenizer import Tokenizer
from mgpt.validate import integer, one_of

MARKS = (".", ":", "?")
WORDS = ("limit", "for", "is", "update", "answer")
ITEMS = (
    "hotel", "train", "taxi", "flight", "meal", "museum", "ferry", "bus", "parking", "visa", "phone",
    "laundry", "gift", "car", "bicycle", "tram", "luggage", "guide", "insurance", "concert", "coffee", "toll",
)
VOCABULARY = MARKS + WORDS + tuple("0123456789") + ITEMS  # 40 words
VALUES = range(100, 1000)
ANSWER_LEN = 3  # digits
MAX_UPDATES = 80  # the calibration split has at least 81 values of each item
SPLITS = ("train", "calibration", "held_out")

# The book's story, pairs of the held-out split.
TRAVEL_POLICY = "limit for hotel is 600. limit for train is 430. limit for taxi is 150."
TRAVEL_UPDATE = "update: limit for hotel is 750."
TRAVEL_QUESTION = "limit for hotel? answer:"
TRAVEL_PROMPT = f"{TRAVEL_POLICY} {TRAVEL_UPDATE} {TRAVEL_QUESTION}"
TRAVEL_PROMPT_BEFORE = f"{TRAVEL_POLICY} {TRAVEL_QUESTION}"


def split_of(item, value):
    """The split that the pair (item, value) belongs to.

    By the remainder of value + 5 · (place of the item) by 11, which depends on all three digits: 2 and 6 are
    held out (the hotel's 600 and 750 are such), 4 is for calibration, the other eight are for training.
    ValueError for an item or a value (100 .. 999) that the task does not have.
    """
    one_of("item", item, ITEMS)
    if integer("value", value) not in VALUES:
        raise ValueError(f"value must be in 100 .. 999, got {value}")
    remainder = (value + 5 * ITEMS.index(item)) % 11
    return "held_out" if remainder in (2, 6) else "calibration" if remainder == 4 else "train"


@dataclass(frozen=True)
class Policy:
    """Lines of (item, value) in the order they were said: first one for each item, then the updates."""

    lines: tuple
    updates: tuple = ()

    @property
    def text(self):
        """The policy as a prompt has it."""
        said = [f"limit for {item} is {value}." for item, value in self.lines]
        return " ".join(said + [f"update: limit for {item} is {value}." for item, value in self.updates])

    def values(self, item):
        """All that was said about an item, the latest last."""
        return tuple(value for name, value in self.lines + self.updates if name == item)


@dataclass(frozen=True)
class Question:
    """One question about one item of a policy."""

    policy: Policy
    item: str

    @property
    def text(self):
        """The question alone, which follows the policy."""
        return f"limit for {self.item}? answer:"

    @property
    def prompt(self):
        """Policy and question."""
        return f"{self.policy.text} {self.text}"

    @property
    def answer(self):
        """The latest value, as text."""
        return str(self.policy.values(self.item)[-1])

    @property
    def superseded(self):
        """The values that are out of date, as text: the answers that would be stale."""
        return tuple(str(value) for value in self.policy.values(self.item)[:-1])


def make_tokenizer():
    """The Tokenizer of the task."""
    return Tokenizer(VOCABULARY)


def draw_policy(bits, split, n_items, n_updates):
    """A random Policy: n_items items, then n_updates lines, each about any of these, with a new value.

    bits: a numpy.random.PCG64.  Its raw stream is promised to stay as it is (NEP 19), the methods of
    numpy.random.Generator are not, and the counts that the book prints must not move with NumPy's version.
    """
    one_of("split", split, SPLITS)
    if not isinstance(bits, np.random.PCG64):
        raise ValueError(f"bits must be a numpy.random.PCG64, got {type(bits).__name__}")
    left = list(ITEMS)
    if integer("n_items", n_items, at_least=1) > len(left):
        raise ValueError(f"n_items must be at most {len(left)}, got {n_items}")
    if integer("n_updates", n_updates) > MAX_UPDATES:
        raise ValueError(f"n_updates must be at most {MAX_UPDATES}, got {n_updates}")
    items = [left.pop(_below(bits, len(left))) for _ in range(n_items)]
    lines = [(item, _draw_value(bits, split, item, ())) for item in items]
    updates = []
    for _ in range(n_updates):
        item = items[_below(bits, n_items)]
        said = [value for name, value in lines + updates if name == item]
        updates.append((item, _draw_value(bits, split, item, said)))
    return Policy(tuple(lines), tuple(updates))


def questions(split="held_out", hard=False):
    """The fixed questions of a split: about each item of each policy, policy by policy.

    hard: 192 policies of 7 items and 4 updates, 1,344 questions; otherwise 64 of 4 items and 2 updates, 256.
    """
    bits = np.random.PCG64([SPLITS.index(one_of("split", split, SPLITS)), int(hard)])
    n_policies, n_items, n_updates = (192, 7, 4) if hard else (64, 4, 2)
    policies = [draw_policy(bits, split, n_items, n_updates) for _ in range(n_policies)]
    return [Question(policy, item) for policy in policies for item, _ in policy.lines]


def _draw_value(bits, split, item, taken):
    while True:
        value = VALUES[_below(bits, len(VALUES))]
        if value not in taken and split_of(item, value) == split:
            return value


def _below(bits, n):
    return int(bits.random_raw()) * n >> 64
