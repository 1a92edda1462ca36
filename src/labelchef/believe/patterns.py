r"""Patterns: where regular expressions first match in n texts, in time that is linear in the texts.

A pattern is written as Python's `re` has it. Python searches it by trying out, which for some patterns takes time exponential in
the length of a text ("(a+)+$"). Here RE2 searches it, in time of at most (size of the pattern) · (length of the text).

**Characters.** Where RE2 looks for the border of a word, it knows letters of ASCII only. So texts and pattern are first
written in an alphabet of at most 256 symbols. Let a_1 … a_K be the parts of the pattern that match one character ("x", "[a-f]",
"\d", "."), and w whether a character is one of a word. Two characters that all of a_1 … a_K, w tell alike are one symbol,

    symbol: code point → 0 … 255,     a_k becomes the set {symbol(c): a_k matches c},

and symbols of letters are letters of ASCII. Python's own `re` says which single characters a_k matches, so that case, categories
and ranges mean what they mean in Python, in every script. One thing differs: where $ stands before a newline at the end of a
text, that newline belongs to the match.
"""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
import re2
from numpy.typing import NDArray

from labelchef.base.errors import InvalidInputError

_parser = import_module("re._parser")  # it reads a pattern as `re` does
LONGEST_PATTERN = 1000
"""Characters of a pattern."""
LARGEST_PROGRAM = 5000
"""Instructions of a compiled pattern: RE2 takes at most so many steps a character."""
PATTERN_SECONDS = 5.0
"""Time of one pattern on a column, to which a second is added for every million characters of the column."""
_CHUNK = 1_000_000
"""Characters of texts that are rewritten at once."""
_NEWLINE = 10
_WORD_SYMBOLS = [code for code in range(128) if chr(code).isalnum() or chr(code) == "_"]
_OTHER_SYMBOLS = [code for code in range(256) if code not in _WORD_SYMBOLS and code != _NEWLINE]
_INSTEAD = {
    "ASSERT": (
        "looks ahead or behind, as in (?=…) or (?<=…)",
        "write what has to stand there as a part of the pattern",
    ),
    "ASSERT_NOT": ("looks ahead or behind, as in (?!…) or (?<!…)", "use a keyword rule with `unless`"),
    "GROUPREF": ("refers back to a group, as in \\1", "write the repeated text itself"),
    "GROUPREF_EXISTS": ("depends on a group, as in (?(1)…)", "write both cases with |"),
    "ATOMIC_GROUP": ("has a group that is not searched again, (?>…)", "use (?:…)"),
    "POSSESSIVE_REPEAT": ("has a repetition that gives nothing back, as in a++", "use a+"),
}
"""What linear time does not allow, and what to write instead."""
_PLACES = {
    "AT_BEGINNING": r"\A",
    "AT_BEGINNING_STRING": r"\A",
    "AT_END": r"\n?\z",
    "AT_END_STRING": r"\z",
    "AT_BOUNDARY": r"\b",
    "AT_NON_BOUNDARY": r"\B",
}
_OF_LINES = {"AT_BEGINNING": "(?m:^)", "AT_END": "(?m:$)"}
_CATEGORIES = {"DIGIT": r"\d", "NOT_DIGIT": r"\D", "SPACE": r"\s", "NOT_SPACE": r"\S", "WORD": r"\w", "NOT_WORD": r"\W"}
_NOTHING = r"[^\x00-\xff]"
_FLAGS = re.IGNORECASE | re.DOTALL | re.ASCII
"""What decides which characters a part of a pattern matches."""


class PatternTimeError(InvalidInputError):
    """A pattern that takes too long on the texts it is used on."""


def check_pattern(pattern: str) -> None:
    """Refuse what is no regular expression, with the position of the error, and what cannot be searched in linear time.

    >>> check_pattern(r"\\b(free|win)\\b")
    >>> check_pattern("free(")
    Traceback (most recent call last):
    labelchef.base.errors.InvalidInputError: the pattern 'free(' is no regular expression: missing ), unterminated subpattern
    at character 5
    """
    _compiled(pattern, True, "".join(map(chr, range(128))) + pattern)


def search_patterns(
    patterns: Sequence[tuple[str, bool]],
    texts: Sequence[str],
    *,
    seconds: float | None = None,
    check: Callable[[], None] = lambda: None,
) -> Iterator[NDArray[np.int32]]:
    """For each pattern in turn (n, 2): where its first match begins and ends in each text, −1 where there is none.

    A pattern comes with whether it minds upper and lower case. `seconds` is the time for one pattern; None for a time that grows
    with the texts. A pattern that takes longer raises `PatternTimeError`.
    `check` is called again and again; what it raises ends the search.

    >>> [spans.tolist() for spans in search_patterns([("w[io]n", True)], ["you won", "Win"])]
    [[[4, 7], [-1, -1]]]
    """
    if seconds is None:
        seconds = PATTERN_SECONDS + sum(map(len, texts)) / 1e6
    chunks = _chunks(texts)
    characters = "".join(set().union(*texts))
    for pattern, match_case in patterns:
        written = _compiled(pattern, match_case, characters)
        spans = np.full((len(texts), 2), -1, dtype=np.int32)
        ends = time.monotonic() + seconds
        for first, last in chunks:
            codes = np.frombuffer("".join(texts[first:last]).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
            data, at = written.symbols[codes].tobytes(), 0
            for row in range(first, last):
                start, at = at, at + len(texts[row])
                found = written.searched.search(data[start:at])
                if found:
                    spans[row] = found.span()
                check()
                if time.monotonic() > ends:
                    raise PatternTimeError(
                        f"the pattern {pattern!r} takes more than {seconds:.3g} seconds on {len(texts)} texts; "
                        "make it shorter, above all numbers of repetitions, as in {500}",
                        code="rule_time",
                    )
        yield spans


def _chunks(texts: Sequence[str]) -> list[tuple[int, int]]:
    """Rows from … to … that hold about `_CHUNK` characters together."""
    filled = np.cumsum([len(text) for text in texts], dtype=np.int64) // _CHUNK
    return list(pairwise([0, *(np.flatnonzero(np.diff(filled)) + 1).tolist(), len(texts)]))


@dataclass(frozen=True)
class _Written:
    """A pattern in symbols."""

    symbols: NDArray[np.uint8]
    """Code point → symbol, up to the largest code point that is known."""
    searched: "re2._Regexp"


def _compiled(pattern: str, match_case: bool, characters: str) -> _Written:
    """The pattern for texts of these characters."""
    if len(pattern) > LONGEST_PATTERN:
        raise InvalidInputError(
            f"the pattern has {len(pattern)} characters; at most {LONGEST_PATTERN} are allowed. Use a dictionary for many words",
            code="rule_pattern",
        )
    try:
        tree, parts = _parser.parse(pattern, 0 if match_case else re.IGNORECASE), _Parts([], {}, set())
        parts.add(tree, tree.state.flags)
        return parts.written(characters or " ")
    except re.error as error:
        where = "" if error.pos is None else f" at character {error.pos + 1}"
        why = f"is no regular expression: {error.msg}{where}"
    except (RecursionError, OverflowError, FutureWarning) as error:
        why = f"cannot be used: {error}"
    except _NotSearchableError as error:
        why = str(error)
    raise InvalidInputError(f"the pattern {pattern!r} {why}", code="rule_pattern")


class _NotSearchableError(Exception):
    """What is a regular expression, but cannot be searched here; it ends the sentence "the pattern …"."""


@dataclass(frozen=True)
class _Parts:
    """A pattern taken apart."""

    pieces: list[str | int]
    """Its text for RE2; a number stands for a set of characters."""
    sets: dict[tuple[str, int], int]
    """Pattern of one character for `re`, with flags → its number."""
    borders: set[int]
    """Flags of the borders of words in it."""

    def add(self, items: Any, flags: int) -> None:
        """Take a list of `_parser` apart: pairs of an operation and its arguments."""
        for operation, value in items:
            name = operation.name
            if name in _INSTEAD:
                what, instead = _INSTEAD[name]
                raise _NotSearchableError(f"{what}, which is not searched in bounded time; {instead}")
            if name == "AT":
                if value.name in ("AT_BOUNDARY", "AT_NON_BOUNDARY"):
                    self.borders.add(flags & re.ASCII)
                places = _PLACES | _OF_LINES if flags & re.MULTILINE else _PLACES
                self.pieces.append(f"(?:{places[value.name]})")
            elif name == "BRANCH":
                self._group(value[1], flags)
            elif name == "SUBPATTERN":
                self._group([value[3]], (flags | value[1]) & ~value[2])
            elif name in ("MAX_REPEAT", "MIN_REPEAT"):
                low, high, body = value
                self._group([body], flags)
                most = "" if high == _parser.MAXREPEAT else int(high)
                self.pieces.append(f"{{{int(low)},{most}}}" + "?" * (name == "MIN_REPEAT"))
            else:
                self.pieces.append(
                    self.sets.setdefault((_one_character(operation, value), flags & _FLAGS), len(self.sets))
                )

    def _group(self, branches: Any, flags: int) -> None:
        for k, branch in enumerate(branches):
            self.pieces.append("|" if k else "(?:")
            self.add(branch, flags)
        self.pieces.append(")")

    def written(self, characters: str) -> _Written:
        """The pattern in symbols for texts of these characters."""
        if len(self.borders) > 1:
            raise _NotSearchableError("has borders of words with and without (?a:…); write (?a) at its beginning")
        known = "".join(sorted({*characters, "\n"}))
        tests = [*self.sets, (r"\n", 0), *((r"\w", flags) for flags in self.borders)]
        holds = np.zeros((len(tests), len(known)), dtype=bool)
        for k, (source, flags) in enumerate(tests):
            holds[k, [found.start() for found in re.compile(source, flags).finditer(known)]] = True
        alike, kind = np.unique(holds, axis=1, return_inverse=True)  # (K, kinds)
        n, of_words = len(self.sets), alike[-1] & bool(self.borders)
        free = iter(_WORD_SYMBOLS), iter(_OTHER_SYMBOLS if self.borders else [*_OTHER_SYMBOLS, *_WORD_SYMBOLS])
        symbols = [
            _NEWLINE if one[n] else next(free[not word], -1) for one, word in zip(alike.T, of_words, strict=True)
        ]
        if -1 in symbols:
            raise _NotSearchableError("names too many different characters; use a dictionary, or several rules")
        table = np.zeros(ord(known[-1]) + 1, dtype=np.uint8)
        table[list(map(ord, known))] = np.array(symbols)[kind.reshape(-1)]
        texts = ["".join(rf"\x{symbols[j]:02x}" for j in np.flatnonzero(row)) for row in alike[:n]]
        sets = [f"[{one}]" if one else _NOTHING for one in texts]
        return _Written(table, _compile("".join(one if isinstance(one, str) else sets[one] for one in self.pieces)))


def _compile(text: str) -> "re2._Regexp":
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors, options.never_capture = False, True
    try:
        searched = re2.compile(text.encode(), options)
    except re2.error as error:
        said = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
        why = f"cannot be searched in bounded time: {said}; repeat at most 1000 times, in all repetitions together"
        raise _NotSearchableError(why) from None
    if searched.programsize > LARGEST_PROGRAM:
        raise _NotSearchableError(
            f"has {searched.programsize} steps; at most {LARGEST_PROGRAM} are searched. Repeat less often, as in {{1,50}}"
        )
    return searched


def _one_character(operation: Any, value: Any) -> str:
    """The text of a part that matches one character: LITERAL, NOT_LITERAL, ANY or IN."""
    if operation.name == "ANY":
        return "."
    inside = "^" if operation.name == "NOT_LITERAL" else ""
    for kind, one in value if operation.name == "IN" else [(operation, value)]:
        if kind.name == "NEGATE":
            inside += "^"
        elif kind.name == "RANGE":
            inside += "-".join(re.escape(chr(end)) for end in one)
        elif kind.name == "CATEGORY":
            inside += _CATEGORIES[one.name.removeprefix("CATEGORY_")]
        else:
            inside += re.escape(chr(one))
    return f"[{inside}]"
