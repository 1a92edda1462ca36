"""Where in a text the words and patterns of rules are, to mark them for people.

    keyword, dictionary   every occurrence of one of the words, on rows that the rule votes on
    regex                 the first match: it is what made the rule vote; further matches are not searched, since a pattern may
                          take long on what follows its first match
    threshold, model      nothing: they read no text

Words are compared after folding (`searching.fold`), which may change the length of a text. So a text is folded piece by piece, a
piece being a character with the combining marks behind it, and every folded character knows the piece it came from. Where the
pieces do not give what folding the whole text gives (Hangul that is written in single letters), nothing is marked.

Offsets count Unicode code points, as Python does; `utf16` turns them into what JavaScript counts.
"""

import unicodedata
from collections.abc import Iterable, Sequence

from labelchef.believe.rules import Dictionary, Keyword, Regex, Rule, RuleBoard
from labelchef.believe.searching import fold, is_word_character

Span = tuple[int, int]
MOST_MARKS = 50
"""Marks of one rule in one text."""


def spans_of(rule: Rule, board: RuleBoard) -> Iterable[tuple[int, Span]]:
    """(row, where) for each place in the texts of the rule's column on which its vote rests; rows ascending."""
    found = board.matches(rule)
    if isinstance(rule, Regex):
        assert found.spans is not None, "a pattern has places"
        for row, (start, end) in zip(found.rows.tolist(), found.spans.tolist(), strict=True):
            if end > start:
                yield row, (start, end)
    elif isinstance(rule, Keyword | Dictionary):
        whole = rule.whole_word if isinstance(rule, Keyword) else True
        texts = board.texts(rule.column).texts
        for row in found.rows.tolist():
            for span in words_in(texts[row], rule.words, whole_word=whole, match_case=rule.match_case)[:MOST_MARKS]:
                yield row, span


def words_in(text: str, words: Iterable[str], *, whole_word: bool = True, match_case: bool = False) -> list[Span]:
    """Where the words occur in a text, by their beginning.

    >>> words_in("Win, or window? WIN!", ["win"])
    [(0, 3), (16, 19)]
    >>> words_in("🎉 STRASSE", ["straße"])
    [(2, 9)]
    """
    folded, origin = _folded(text, match_case=match_case)
    spans: set[Span] = set()
    for word in dict.fromkeys(fold(word, match_case=match_case) for word in words):
        if not word:
            continue
        first, last = (whole_word and is_word_character(end) for end in (word[0], word[-1]))
        at = folded.find(word)
        while at >= 0:
            end = at + len(word)
            inside = first and at > 0 and is_word_character(folded[at - 1])
            goes_on = last and end < len(folded) and is_word_character(folded[end])
            if not (inside or goes_on):
                spans.add((origin[at][0], origin[end - 1][1]))
            at = folded.find(word, at + 1)
    return sorted(spans)


def _folded(text: str, *, match_case: bool) -> tuple[str, Sequence[Span]]:
    """The folded text, and for each of its characters the piece of the text that it came from; nothing where that is unknown."""
    if text.isascii():
        return fold(text, match_case=match_case), [(k, k + 1) for k in range(len(text))]
    pieces: list[Span] = []
    for k, character in enumerate(text):
        if pieces and unicodedata.combining(character):
            pieces[-1] = (pieces[-1][0], k + 1)
        else:
            pieces.append((k, k + 1))
    parts = [fold(text[start:end], match_case=match_case) for start, end in pieces]
    folded = "".join(parts)
    if folded != fold(text, match_case=match_case):
        return "", []
    return folded, [piece for piece, part in zip(pieces, parts, strict=True) for _ in part]


def utf16(text: str, offsets: Iterable[int]) -> list[int]:
    """Offsets in code points as offsets in UTF-16 units, which JavaScript counts.

    >>> utf16("a🎉b", [0, 1, 2, 3])
    [0, 1, 3, 4]
    """
    wide = [k for k, character in enumerate(text) if ord(character) > 0xFFFF]
    return [offset + sum(k < offset for k in wide) for offset in offsets]
