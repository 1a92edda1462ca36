"""Encoders by name, as the command line has them, and those that are taken where none is named.

    name                    of       what it is
    tfidf                   text     words and characters, two blocks, no download (`data.encoders.text`)
    sentence                text     the sentence encoder MiniLM (`data.encoders.sentences`)
    sentence:NAME           text     another one, by its name or folder
    pixels                  images   small pictures and gradients (`data.encoders.images`)
    efficientnet            images   EfficientNet-Lite0
    table                   columns  numbers, categories, dates (`data.encoders.tables`)
    auto                    all      what is usual for every kind that no other name is about

Usual are: for text, tfidf, and beside it the sentence encoder where it is installed and there is a GPU, or no more than
`sentences.USUAL_ROWS` texts; for images, efficientnet where it is
installed, else pixels; for columns, table. Features that came as numbers are always used (`data.encoders.numbers`).

A name replaces what is usual for its kind; the other kinds keep it. Several names of one kind stand side by side.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from labelchef.base.errors import InvalidInputError
from labelchef.base.intake import ColumnRole
from labelchef.data.encoders.images import EFFICIENTNET, PixelEncoder, efficientnet_encoder, has_efficientnet
from labelchef.data.encoders.numbers import NumbersEncoder
from labelchef.data.encoders.protocol import Encoder
from labelchef.data.encoders.sentences import MINILM, SentenceEncoder, usual_network
from labelchef.data.encoders.tables import TableEncoder
from labelchef.data.encoders.text import CHARS, WORDS, TfidfEncoder

EncoderSpecs: TypeAlias = Sequence["str | Encoder"]
"""Encoders by name or as objects; an object reads the columns that it was made for."""

AUTO, TFIDF, SENTENCE, PIXELS, TABLE = "auto", "tfidf", "sentence", "pixels", "table"
KIND = {
    TFIDF: ColumnRole.TEXT,
    SENTENCE: ColumnRole.TEXT,
    PIXELS: ColumnRole.IMAGE,
    EFFICIENTNET: ColumnRole.IMAGE,
    TABLE: ColumnRole.FEATURE,
}
"""Name → the role of the columns that it reads."""
_OPTION = {ColumnRole.TEXT: "--text", ColumnRole.IMAGE: "--image", ColumnRole.FEATURE: "--columns"}


def check_specs(specs: Sequence[str]) -> tuple[str, ...]:
    """Names as they came, or an error that says which ones there are.

    >>> check_specs(["tfidf", "sentence:some/folder"])
    ('tfidf', 'sentence:some/folder')
    """
    for spec in specs:
        if spec != AUTO and (
            spec.partition(":")[0] not in KIND or (":" in spec and not spec.startswith(f"{SENTENCE}:"))
        ):
            raise InvalidInputError(
                f"there is no encoder {spec!r}; expected {AUTO}, {TFIDF}, {SENTENCE}, {SENTENCE}:NAME_OR_FOLDER, {PIXELS}, "
                f"{EFFICIENTNET} or {TABLE}",
                code="encoder",
            )
        if spec == f"{SENTENCE}:":
            raise InvalidInputError(f"{spec!r} names no network; expected {SENTENCE}:NAME_OR_FOLDER", code="encoder")
    return tuple(specs)


def usual(role: ColumnRole, n_rows: int = 0) -> tuple[str, ...]:
    """The names that are taken for columns of a role, with what is installed."""
    if role is ColumnRole.TEXT:
        return (TFIDF,) if usual_network(n_rows) is None else (TFIDF, SENTENCE)
    if role is ColumnRole.IMAGE:
        return (EFFICIENTNET,) if has_efficientnet() else (PIXELS,)
    return (TABLE,)


def encoders_of(
    content: Mapping[str, ColumnRole],
    specs: EncoderSpecs = (AUTO,),
    *,
    given: bool = False,
    n_rows: int = 0,
    cache: Path | None = None,
    seed: int = 0,
) -> list[Encoder]:
    """The encoders for these columns; `given` says whether the rows have features of their own."""
    named = check_specs([spec for spec in specs if isinstance(spec, str)])
    found: list[Encoder] = []
    for role in (ColumnRole.TEXT, ColumnRole.IMAGE, ColumnRole.FEATURE):
        columns = tuple(name for name, own in content.items() if own is role)
        wanted = tuple(dict.fromkeys(one for one in named if one != AUTO and KIND[one.partition(":")[0]] is role))
        if wanted and not columns:
            raise InvalidInputError(
                f"the encoder {wanted[0]!r} reads columns of role {role.value}, and there is none. Name them: {_OPTION[role]}",
                code="encoder",
            )
        objects = [spec for spec in specs if not isinstance(spec, str)]
        if not wanted and AUTO not in named and any(set(columns) & set(_columns(one)) for one in objects):
            continue  # an object takes the place of what is usual
        for one in wanted or usual(role, n_rows):
            found += _made(one, columns, cache, seed) if columns else []
    found += [spec for spec in specs if not isinstance(spec, str)]
    if given:
        found.append(NumbersEncoder())
    return found


def _columns(encoder: Encoder) -> tuple[str, ...]:
    return tuple(getattr(encoder, "columns", None) or (getattr(encoder, "column", ""),))


def _made(name: str, columns: tuple[str, ...], cache: Path | None, seed: int) -> list[Encoder]:
    kind, _, network = name.partition(":")
    if kind == TFIDF:
        return [TfidfEncoder(columns, terms, seed) for terms in (WORDS, CHARS)]
    if kind == SENTENCE:
        return [SentenceEncoder(columns, network or MINILM, cache)]
    if kind == PIXELS:
        return [PixelEncoder(column, seed) for column in columns]
    if kind == EFFICIENTNET:
        return [efficientnet_encoder(column, cache) for column in columns]
    return [TableEncoder(columns, seed)]
