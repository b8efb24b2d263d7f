"""Text <-> token ids for a small closed vocabulary: whole words, digits one by one, marks."""

import numbers
import re
import unicodedata

# A run of letters, or any other visible character (a digit, a mark) by itself.
PIECE = re.compile(r"[^\W\d_]+|\S")


class Tokenizer:
    """The vocabulary `words`: the id of a word is its place in it.

    Every word must be one piece of text: a digit, letters alone, or one mark.
    """

    def __init__(self, words):
        self.words = tuple(words)
        self._ids = {word: i for i, word in enumerate(self.words)}
        wrong = [w for w in self.words if not isinstance(w, str) or _pieces(w) != [w]]
        if wrong or not self.words or len(self._ids) != len(self.words):
            raise ValueError(f"words must be different digits, lower-case words and single marks, "
                             f"got {wrong or self.words}")

    def __len__(self):
        return len(self.words)

    def encode(self, text):
        """The ids (a list of ints) of `text`.

        Case, spacing and full-width forms do not matter, marks may touch their word, numbers are read digit
        by digit: "Hotel is 750." gives the ids of hotel, is, 7, 5, 0 and the full stop.
        ValueError: text that is no str; pieces outside the vocabulary, with a list of what is known.
        """
        if not isinstance(text, str):
            raise ValueError(f"text must be a str, got {type(text).__name__}")
        pieces = _pieces(text)
        unknown = list(dict.fromkeys(piece for piece in pieces if piece not in self._ids))
        if unknown:
            raise ValueError(f"text has words outside the vocabulary: {' '.join(unknown)}. "
                             f"Known are: {' '.join(self.words)}")
        return [self._ids[piece] for piece in pieces]

    def decode(self, ids):
        """The text of `ids`: digits together, marks close to their word; `encode` gives the same ids back.

        ValueError for an id that is no integer of the vocabulary.
        """
        text, last = "", ""
        for i in ids:
            if isinstance(i, bool) or not isinstance(i, numbers.Integral) or not 0 <= i < len(self.words):
                raise ValueError(f"ids must be integers in 0 .. {len(self.words) - 1}, got {i!r}")
            word = self.words[i]
            closes = not word.isalnum() or (word.isdigit() and last.isdigit())
            text += word if closes or not text else " " + word
            last = word
        return text


def _pieces(text):
    return PIECE.findall(unicodedata.normalize("NFKC", text).lower())
