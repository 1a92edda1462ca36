"""Words in a column of n texts. Patterns: `believe.patterns`.

A text is compared after casefolding (unless `match_case`) and in the Unicode form NFC. A *word character* is a letter,
a digit or the underscore. A word w occurs as a whole word where neither neighbour of the occurrence is a word character; an end
of w that is itself no word character, as in ":)", needs no such boundary. Words of word characters only are looked up among the T
tokens of the column, which are found once,

    tokens (T,), rows (T,),     text i has the word v  ⇔  some t has tokens[t] = v and rows[t] = i,

so a dictionary of thousands of words takes one pass over T small numbers. Everything else is searched in one string that holds
all texts.
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from labelchef.base.arrays import Bools

_TOKEN = re.compile(r"\w+")
_BETWEEN = "\0"


def is_word_character(character: str) -> bool:
    r"""Whether it is `\w`."""
    return character.isalnum() or character == "_"


def fold(text: str, *, match_case: bool = False) -> str:
    """The form in which texts and words are compared.

    >>> fold("Straße") == fold("STRASSE")
    True
    """
    return unicodedata.normalize("NFC", text if match_case else text.casefold())


@dataclass(frozen=True)
class _Tokens:
    """The words of a column."""

    numbers: dict[str, int]
    """Word → its number."""
    tokens: NDArray[np.int32]
    """(T,) the number of each token."""
    rows: NDArray[np.int32]
    """(T,) the text that it is in."""


class TextColumn:
    """n texts, searched again and again. Words and the joined text are made on first use and kept.

    >>> column = TextColumn(["Check out my channel", "checkout", None])
    >>> column.having(["check"]).tolist(), column.having(["check"], whole_word=False).tolist()
    ([1, 0, 0], [1, 1, 0])
    """

    def __init__(self, values: Iterable[object]) -> None:
        self.texts = ["" if value is None or value is pd.NA or value != value else str(value) for value in values]
        self._folded: dict[bool, list[str]] = {}
        self._tokens: dict[bool, _Tokens] = {}
        self._joined: dict[bool, tuple[str, list[int]]] = {}

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def empty(self) -> Bools:
        """(n,) texts without anything in them."""
        return np.fromiter((not text for text in self.texts), dtype=bool, count=len(self))

    def having(self, words: Iterable[str], *, whole_word: bool = True, match_case: bool = False) -> NDArray[np.int32]:
        """(n,) how many different ones of the words occur in each text."""
        counts = np.zeros(len(self), dtype=np.int32)
        single: list[str] = []
        for word in dict.fromkeys(fold(word, match_case=match_case) for word in words):
            if whole_word and _TOKEN.fullmatch(word):
                single.append(word)
            elif word:
                counts[self._rows_with(word, whole_word=whole_word, match_case=match_case)] += 1
        if single:
            counts += self._tokens_among(single, match_case=match_case)
        return counts

    def _fold(self, match_case: bool) -> list[str]:
        if match_case not in self._folded:
            self._folded[match_case] = [fold(text, match_case=match_case) for text in self.texts]
        return self._folded[match_case]

    def _tokens_among(self, words: Sequence[str], *, match_case: bool) -> NDArray[np.int32]:
        if match_case not in self._tokens:
            self._tokens[match_case] = _tokens_of(self._fold(match_case))
        known = self._tokens[match_case]
        wanted = np.zeros(len(known.numbers) + 1, dtype=bool)
        wanted[[known.numbers[word] for word in words if word in known.numbers]] = True
        at = np.flatnonzero(wanted[known.tokens])
        pairs = np.unique(known.rows[at].astype(np.int64) * len(wanted) + known.tokens[at])
        return np.bincount(pairs // len(wanted), minlength=len(self)).astype(np.int32)

    def _rows_with(self, word: str, *, whole_word: bool, match_case: bool) -> list[int]:
        if _BETWEEN in word:
            return []
        if match_case not in self._joined:
            texts = [text.replace(_BETWEEN, " ") for text in self._fold(match_case)]
            starts = [0, *accumulate(len(text) + 1 for text in texts)]
            self._joined[match_case] = (_BETWEEN.join(["", *texts, ""]), starts)
        joined, starts = self._joined[match_case]  # text i is joined[starts[i] + 1 : starts[i + 1]]
        before, after = (whole_word and is_word_character(end) for end in (word[0], word[-1]))
        rows, at = [], joined.find(word)
        while at >= 0:
            end = at + len(word)
            if (before and is_word_character(joined[at - 1])) or (after and is_word_character(joined[end])):
                at = joined.find(word, at + 1)
                continue
            row = bisect_right(starts, at) - 1
            rows.append(row)
            at = joined.find(word, starts[row + 1])
        return rows


def _tokens_of(texts: Sequence[str]) -> _Tokens:
    found = [_TOKEN.findall(text) for text in texts]
    counts = np.fromiter(map(len, found), dtype=np.int64, count=len(found))
    numbers: dict[str, int] = {}
    tokens = np.fromiter(
        (numbers.setdefault(token, len(numbers)) for token in chain.from_iterable(found)),
        dtype=np.int32,
        count=int(counts.sum()),
    )
    return _Tokens(numbers, tokens, np.repeat(np.arange(len(texts), dtype=np.int32), counts))
