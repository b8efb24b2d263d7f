"""Laws of the tokenizer: what a reader may type, what comes back, and what is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgpt.policy import VOCABULARY, make_tokenizer
from mgpt.tokenizer import Tokenizer

TOKENIZER = make_tokenizer()
LIMIT, FOR, HOTEL, IS = (VOCABULARY.index(word) for word in ("limit", "for", "hotel", "is"))
STOP, COLON, ASKS = 0, 1, 2
SEVEN, FIVE, ZERO = (VOCABULARY.index(digit) for digit in "750")


def test_a_line_has_one_id_a_word_a_digit_and_a_mark():
    line = [LIMIT, FOR, HOTEL, IS, SEVEN, FIVE, ZERO, STOP]
    assert TOKENIZER.encode("limit for hotel is 7 5 0 .") == line
    assert TOKENIZER.encode("Limit for HOTEL is 750.\n") == line


@pytest.mark.parametrize("text, ids", [
    ("hotel?", [HOTEL, ASKS]), ("hotel ?", [HOTEL, ASKS]), ("Hotel:", [HOTEL, COLON]),
    ("750", [SEVEN, FIVE, ZERO]), ("75 0", [SEVEN, FIVE, ZERO]), ("hotel750", [HOTEL, SEVEN, FIVE, ZERO]),
    ("hotel？７５０", [HOTEL, ASKS, SEVEN, FIVE, ZERO]),  # full-width forms
    ("", []), (" \t\n", []), ("...", [STOP, STOP, STOP]),
])
def test_marks_may_touch_words_and_digits_are_read_one_by_one(text, ids):
    assert TOKENIZER.encode(text) == ids


@pytest.mark.parametrize("text, unknown", [
    ("limit for spaceship is 750 yuan.", "spaceship yuan."), ("hotel, taxi", ",."), ("hotels", "hotels."),
    ("hotel_limit", "_."), ("酒店", "酒店."), ("½", "⁄."), ("٧", "٧."), ("hotel spam spam", "spam."),
])
def test_unknown_words_are_named_once_and_the_known_are_listed(text, unknown):
    with pytest.raises(ValueError) as caught:
        TOKENIZER.encode(text)
    given_back, known = str(caught.value).split(" Known are: ")
    assert given_back == f"text has words outside the vocabulary: {unknown}"
    assert known.split() == list(VOCABULARY)


@pytest.mark.parametrize("text", [None, 750, ["hotel"], b"hotel"])
def test_text_is_a_str(text):
    with pytest.raises(ValueError, match="text must be a str, got"):
        TOKENIZER.encode(text)


def test_decode_reads_like_text():
    assert TOKENIZER.decode([LIMIT, FOR, HOTEL, IS, SEVEN, FIVE, ZERO, STOP]) == "limit for hotel is 750."
    assert TOKENIZER.decode([HOTEL, ASKS, VOCABULARY.index("answer"), COLON, SEVEN]) == "hotel? answer: 7"
    assert TOKENIZER.decode([]) == ""


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.lists(st.integers(0, len(VOCABULARY) - 1), max_size=30))
def test_encode_gives_back_what_decode_was_given(ids):
    assert TOKENIZER.encode(TOKENIZER.decode(ids)) == ids


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.text(max_size=30))
def test_any_text_is_encoded_or_refused_with_a_value_error(text):
    try:
        ids = TOKENIZER.encode(text)
    except ValueError as error:
        assert "Known are:" in str(error)
    else:
        assert all(0 <= i < len(VOCABULARY) for i in ids)


def test_decode_takes_numpy_integers():
    assert TOKENIZER.decode(np.array([SEVEN, FIVE, ZERO], np.int8)) == "750"


@pytest.mark.parametrize("i", [-1, len(VOCABULARY), 1.0, True, "7", None])
def test_decode_refuses_what_is_no_id(i):
    with pytest.raises(ValueError, match="ids must be integers in 0 .. 39, got"):
        TOKENIZER.decode([i])


@pytest.mark.parametrize("words", [(), ("a", "a"), ("two words",), ("10",), ("Hotel",), ("",), (3,)])
def test_a_vocabulary_that_encode_could_not_reach_is_refused(words):
    with pytest.raises(ValueError, match="words must be different digits, lower-case words and single marks"):
        Tokenizer(words)


def test_a_tokenizer_is_as_long_as_its_vocabulary():
    assert len(TOKENIZER) == 40
    assert TOKENIZER.words == VOCABULARY
