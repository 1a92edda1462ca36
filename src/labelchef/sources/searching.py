"""Words and patterns in a column of n texts.

**Words.** A text is compared after casefolding (unless `match_case`) and in the Unicode form NFC. A *word character* is a letter,
a digit or the underscore. A word w occurs as a whole word where neither neighbour of the occurrence is a word character; an end
of w that is itself no word character, as in ":)", needs no such boundary. Words of word characters only are looked up among the T
tokens of the column, which are found once,

    tokens (T,), rows (T,),     text i has the word v  ⇔  some t has tokens[t] = v and rows[t] = i,

so a dictionary of thousands of words takes one pass over T small numbers. Everything else is searched in one string that holds
all texts.

**Patterns** are regular expressions of Python's `re`. Some take time that is exponential in the length of a text ("(a+)+$"), and
a search cannot be interrupted inside a process. So patterns are searched by a child process, which is ended when its time is up.
It gets the texts and gives back where each pattern first matches; it runs nothing but `re`.
"""

import contextlib
import pickle
import re
import subprocess
import sys
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain
from queue import Empty, Queue
from threading import Thread

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from labelchef.domain.arrays import Bools
from labelchef.domain.errors import InvalidInputError

LONGEST_PATTERN = 1000
"""Characters of a pattern."""
PATTERN_SECONDS = 5.0
"""Time of one pattern on a column, to which a second is added for every million characters of the column."""
_START_SECONDS = 20.0
"""Time in which the child process starts and reads the texts."""
_TOKEN = re.compile(r"\w+")
_BETWEEN = "\0"

_CHILD = r"""
import array, pickle, re, sys
patterns, texts = pickle.load(sys.stdin.buffer)
out = sys.stdout.buffer
out.write(b"r"); out.flush()
for pattern, match_case in patterns:
    search = re.compile(pattern, 0 if match_case else re.IGNORECASE).search
    spans = array.array("i")
    for text in texts:
        found = search(text)
        spans.extend(found.span() if found else (-1, -1))
    out.write(spans.tobytes()); out.flush()
"""


class PatternTimeError(InvalidInputError):
    """A pattern that takes too long on the texts it is used on."""


def check_pattern(pattern: str) -> None:
    """Refuse what is no regular expression, with the position of the error.

    >>> check_pattern(r"\\b(free|win)\\b")
    >>> check_pattern("free(")
    Traceback (most recent call last):
    labelchef.domain.errors.InvalidInputError: the pattern 'free(' is no regular expression: missing ), unterminated subpattern
    at character 5
    """
    if len(pattern) > LONGEST_PATTERN:
        raise InvalidInputError(
            f"the pattern has {len(pattern)} characters; at most {LONGEST_PATTERN} are allowed. Use a dictionary for many words",
            code="rule_pattern",
        )
    try:
        re.compile(pattern)
    except re.error as error:
        where = "" if error.pos is None else f" at character {error.pos + 1}"
        why = f"the pattern {pattern!r} is no regular expression: {error.msg}{where}"
        raise InvalidInputError(why, code="rule_pattern") from None
    except (RecursionError, OverflowError, FutureWarning) as error:
        why = f"the pattern {pattern!r} cannot be used: {error}"
        raise InvalidInputError(why, code="rule_pattern") from None


def search_patterns(
    patterns: Sequence[tuple[str, bool]], texts: Sequence[str], *, seconds: float | None = None
) -> Iterator[NDArray[np.int32]]:
    """For each pattern in turn (n, 2): where its first match begins and ends in each text, −1 where there is none.

    A pattern comes with whether it minds upper and lower case. `seconds` is the time for one pattern; None for a time that grows
    with the texts. A pattern that takes longer raises `PatternTimeError`.

    >>> [spans.tolist() for spans in search_patterns([("w[io]n", True)], ["you won", "Win"])]
    [[[4, 7], [-1, -1]]]
    """
    if not texts:
        yield from (np.empty((0, 2), dtype=np.int32) for _ in patterns)
        return
    if seconds is None:
        seconds = PATTERN_SECONDS + sum(map(len, texts)) / 1e6
    command = [sys.executable, "-I", "-S", "-W", "ignore", "-c", _CHILD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        answers: Queue[bytes] = Queue()
        workers = [
            Thread(target=_tell, args=(child, patterns, texts), daemon=True),
            Thread(target=_hear, args=(child, 8 * len(texts), answers), daemon=True),
        ]
        for worker in workers:
            worker.start()
        try:
            for pattern in (None, *(pattern for pattern, _ in patterns)):
                said = answers.get(timeout=_START_SECONDS if pattern is None else seconds)
                if not said:
                    raise InvalidInputError(
                        f"the pattern {pattern!r} could not be searched in {len(texts)} texts: the process ended early",
                        code="rule_pattern",
                    )
                if pattern is not None:
                    yield np.frombuffer(said, dtype=np.int32).reshape(-1, 2)
        except Empty:
            raise PatternTimeError(
                f"the pattern {pattern!r} takes more than {seconds:.3g} seconds on {len(texts)} texts; "
                "avoid repetitions inside of repetitions, as in (a+)+, and .* in several places",
                code="rule_time",
            ) from None
        finally:
            child.kill()
            for worker in workers:
                worker.join()


def _tell(child: "subprocess.Popen[bytes]", patterns: Sequence[tuple[str, bool]], texts: Sequence[str]) -> None:
    """Give the child its work."""
    assert child.stdin is not None
    with contextlib.suppress(OSError), child.stdin as stream:  # OSError: the child was ended meanwhile
        pickle.dump((list(patterns), list(texts)), stream, protocol=5)


def _hear(child: "subprocess.Popen[bytes]", size: int, answers: "Queue[bytes]") -> None:
    """Hand over the sign of life of the child and then every answer, each of this many bytes; nothing at its end."""
    assert child.stdout is not None
    said = child.stdout.read(1)
    while said:
        answers.put(said)
        said = child.stdout.read(size)
        said = said if len(said) == size else b""
    answers.put(b"")


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
