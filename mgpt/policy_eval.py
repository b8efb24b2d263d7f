"""Asking a model the policy questions: right or wrong, how close the decisions were, and what changed.

Shapes: B policies that are asked together (`...` is B, or nothing), P positions of a policy, Q of a question,
V vocab_size.
"""

from dataclasses import dataclass
from itertools import groupby

import numpy as np

from mgpt.cache import KVCache
from mgpt.model import forward
from mgpt.policy import ANSWER_LEN, make_tokenizer
from mgpt.validate import integer

BATCH = 48  # policies a pass: their attention scores still fit a processor's cache


@dataclass(frozen=True)
class Evaluation:
    """What a model answered, in the order of `questions`.

    answers: texts of ANSWER_LEN tokens.  margins: floats, in logits, the smallest lead of the chosen token
    over the second among the answer's decisions; 0.0 is a tie, which the order of the vocabulary decided.
    """

    questions: tuple
    answers: tuple
    margins: tuple

    @property
    def right(self):
        """Questions answered with the latest value."""
        return sum(answer == question.answer for question, answer in zip(self.questions, self.answers))

    @property
    def stale(self):
        """Questions answered with a value that an update had superseded."""
        return sum(answer in question.superseded for question, answer in zip(self.questions, self.answers))

    @property
    def accuracy(self):
        """Right answers / questions."""
        return self.right / len(self.questions)

    def accuracy_on(self, *, updated):
        """Accuracy on the items that were updated, or on the untouched ones; None where there are none."""
        of_kind = [answer == question.answer for question, answer in zip(self.questions, self.answers)
                   if bool(question.superseded) == updated]
        return sum(of_kind) / len(of_kind) if of_kind else None

    def changed(self, reference):
        """Questions that `reference`, an Evaluation of the same ones, answered otherwise."""
        if reference.questions != self.questions:
            raise ValueError("reference must be an evaluation of the same questions in the same order")
        return sum(mine != theirs for mine, theirs in zip(self.answers, reference.answers))

    def closest(self, n):
        """The n questions with the smallest margins, smallest first: (margin, question, answer)."""
        order = sorted(range(len(self.margins)), key=self.margins.__getitem__)[:n]
        return [(self.margins[i], self.questions[i], self.answers[i]) for i in order]

    def near_ties(self, below):
        """How many questions had a decision with a margin smaller than `below` logits."""
        return sum(margin < below for margin in self.margins)


def evaluate(params, config, questions, *, make_cache=None, batch=BATCH, answer=None):
    """Ask `questions`, greedily, and return an Evaluation.

    A policy is processed once; after each of its questions the cache is truncated to it.
    make_cache(capacity, batch): a new cache of the seam for so many sequences, or for one where batch is None;
    float64 KVCaches by default.
    batch: policies asked together, None for caches that hold one sequence alone.
    answer(prompt_ids): instead of all this, any other way to choose ANSWER_LEN tokens; it returns the logits
    (V,) of each.
    ValueError: no questions, or make_cache and answer at once.
    """
    questions = tuple(questions)
    if not questions or (make_cache is not None and answer is not None):
        raise ValueError("evaluate needs at least one question, and make_cache or answer, not both")
    if batch is not None:
        integer("batch", batch, at_least=1)
    tokenizer = make_tokenizer()
    if answer is not None:
        rows = [np.stack(answer(tokenizer.encode(question.prompt))) for question in questions]
    else:
        make_cache = make_cache or (lambda capacity, batch: KVCache(config, capacity, batch=batch))
        rows = list(_ask_policies(params, config, questions, make_cache, batch, tokenizer))
    ordered = np.sort(np.stack(rows), axis=-1)  # (questions, ANSWER_LEN, V)
    margins = (ordered[..., -1] - ordered[..., -2]).min(axis=-1)
    answers = [tokenizer.decode([int(np.argmax(row)) for row in logits]) for logits in rows]
    return Evaluation(questions, tuple(answers), tuple(margins.tolist()))


def _ask_policies(params, config, questions, make_cache, batch, tokenizer):
    """Yields the logits (ANSWER_LEN, V) of each question."""
    policies = [list(group) for _, group in groupby(questions, key=lambda question: question.policy)]
    texts = [(tokenizer.encode(group[0].policy.text), [tokenizer.encode(question.text) for question in group])
             for group in policies]
    # Policies of one shape can go through the model together.
    for (n_policy, _), alike in groupby(texts, key=lambda text: (len(text[0]), len(text[1]))):
        alike = list(alike)
        for start in range(0, len(alike), batch or 1):
            policy_ids, question_ids = zip(*alike[start : start + (batch or 1)])
            policy_ids = np.array(policy_ids)  # (B, P)
            question_ids = np.array(question_ids).swapaxes(0, 1)  # (questions a policy, B, Q)
            n_positions = n_policy + question_ids.shape[-1] + ANSWER_LEN - 1
            if batch is None:
                policy_ids, question_ids = policy_ids[0], question_ids[:, 0]
            cache = make_cache(n_positions, None if batch is None else len(policy_ids))
            logits = np.stack(_ask(params, config, cache, policy_ids, question_ids))
            logits = logits if batch is None else logits.swapaxes(0, 1)
            yield from logits.reshape(-1, *logits.shape[-2:])


def _ask(params, config, cache, policy_ids, question_ids):
    """policy_ids (..., P), question_ids (n, ..., Q) -> n arrays (..., ANSWER_LEN, V)."""
    forward(params, config, policy_ids, cache, last_only=True)
    asked = []
    for ids in question_ids:
        cache.truncate(policy_ids.shape[-1])
        rows = [forward(params, config, ids, cache, last_only=True)]
        for _ in range(ANSWER_LEN - 1):
            rows.append(forward(params, config, rows[-1].argmax(axis=-1)[..., None], cache, last_only=True))
        asked.append(np.stack(rows, axis=-2))
    return asked
