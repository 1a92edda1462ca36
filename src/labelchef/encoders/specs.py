"""Encoders by name, as the command line has them, and those that are taken where none is named.

    tfidf                     text     words and characters, two blocks (`encoders.text`)
    auto                      everything that no other name is about

A name replaces what is usual for its kind of columns; the other kinds keep it. Several names of one kind stand side by side.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from labelchef.domain.errors import InvalidInputError
from labelchef.domain.intake import ColumnRole
from labelchef.encoders.numbers import NumbersEncoder
from labelchef.encoders.protocol import Encoder
from labelchef.encoders.text import CHARS, WORDS, TfidfEncoder

EncoderSpecs: TypeAlias = Sequence["str | Encoder"]
"""Encoders by name or as objects."""

AUTO = "auto"
TFIDF = "tfidf"


def encoders_of(
    content: Mapping[str, ColumnRole],
    specs: EncoderSpecs,
    *,
    given: bool,
    cache: Path | None = None,  # noqa: ARG001
    seed: int = 0,
) -> list[Encoder]:
    """The encoders for these columns; `given` says whether the rows have features of their own."""
    text = tuple(name for name, role in content.items() if role is ColumnRole.TEXT)
    found: list[Encoder] = [spec for spec in specs if not isinstance(spec, str)]
    for spec in specs:
        if isinstance(spec, str) and spec not in (AUTO, TFIDF):
            raise InvalidInputError(f"there is no encoder {spec!r}; expected one of: {AUTO}, {TFIDF}", code="encoder")
    if text:
        found += [TfidfEncoder(text, terms, seed) for terms in (WORDS, CHARS)]
    if given:
        found.append(NumbersEncoder())
    return found
