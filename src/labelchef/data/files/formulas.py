"""Texts that a spreadsheet would run as formulas are written with an apostrophe in front, and read back without it.

The guard g puts one apostrophe before every text that is k ≥ 0 apostrophes and then the beginning of a formula, so it is
one-to-one and g⁻¹(g(t)) = t for all texts t. A file whose every cell could come from g counts as guarded: only then is g⁻¹
used, so that a file of another origin stays as it is.
"""

import re
from collections.abc import Iterable

_FORMULA = re.compile(r"'*(?:[=@\t\r]|[+-](?!\d+([.,]\d+)?$))")
"""How a cell begins that a spreadsheet would run, behind any apostrophes; numbers with a sign are none."""


def harmless(text: str) -> str:
    """Text that a spreadsheet will not take for a formula: such a one gets an apostrophe in front.

    >>> harmless("=1+1"), harmless("-5"), harmless("plain"), harmless("'=1")
    ("'=1+1", '-5', 'plain', "''=1")
    """
    return f"'{text}" if _FORMULA.match(text) else text


def as_written(text: str) -> str:
    """The text before `harmless`.

    >>> as_written("'=1+1"), as_written("'tis"), as_written("''=1")
    ('=1+1', "'tis", "'=1")
    """
    return text[1:] if text[:1] == "'" and _FORMULA.match(text[1:]) else text


def is_guarded(texts: Iterable[str]) -> bool:
    """Whether no text begins like a formula: all of them may have gone through `harmless`.

    >>> is_guarded(["'=1+1", "plain", "-5"]), is_guarded(["=1+1", "'=2"])
    (True, False)
    """
    return not any(text[:1] != "'" and _FORMULA.match(text) for text in texts)
