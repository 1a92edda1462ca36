"""Automatic sources by name: from joined rows to a long table of votes.

    snuba             `believe.automatic.snuba`: words, columns or features → heuristics; each is a source
    snuba-together    the same heuristics as one source: what their label aggregator believes, as soft votes
    affinity          `believe.automatic.affinity`: groups of similar images as one source with soft votes

All of them learn from the trusted rows; their votes there are cross-fitted, and there is no source unless these votes are better
than chance (`believe.automatic.trusted`): beside good sources a useless one can make things worse. It is one decision for all
heuristics of Snuba, by what they believe together, so the votes on trusted rows stay honest.

The table has the columns item (id), source, label, and probability where votes are soft: then an item and source have a row for
each class, and their probabilities sum to 1.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from labelchef.base.arrays import Float64s, Ints
from labelchef.base.errors import InvalidInputError
from labelchef.base.intake import ColumnRole, Progress, no_progress
from labelchef.believe.automatic.affinity import code_affinity, conv_maps, patch_maps
from labelchef.believe.automatic.snuba import LEAST_COVERAGE, LEAST_TRUSTED, Primitives, write_heuristics
from labelchef.believe.automatic.trusted import better_than_chance
from labelchef.believe.automatic.words import Words
from labelchef.believe.vote_forms import long_table
from labelchef.data.encoders.images import EFFICIENTNET, has_efficientnet, network, read_image
from labelchef.data.encoders.protocol import Content
from labelchef.data.intake.raw import Raw

AUTOMATIC: Mapping[str, str] = {
    "snuba": "rules from words or columns, written from the trusted rows; each is a source",
    "snuba-together": "the same rules as one source with probabilities",
    "affinity": "groups of similar images, named by the trusted rows",
}
"""Name → what it does, for help texts."""

MOST_WORDS = 500
_MOST_VALUES = 20
_SIDE = 96


def make_votes(kind: str, raw: Raw, seed: int = 0, progress: Progress = no_progress) -> pd.DataFrame:
    """The votes of an automatic source on training and trusted rows; none where nothing better than chance was found."""
    if kind not in AUTOMATIC:
        raise InvalidInputError(
            f"there is no automatic source {kind!r}; expected one of: {', '.join(AUTOMATIC)}", code="automatic"
        )
    y, ids = trusted_classes(raw), [*raw.train.ids, *raw.trusted.ids]
    if kind == "affinity":
        train, trusted = _affinity(raw, y, seed, progress)
    else:
        written = write_heuristics(primitives_of(raw), y, raw.classes, seed, progress)
        train, trusted = written.train_beliefs, written.trusted_beliefs
    kept = len(ids) if better_than_chance(trusted, y) else 0
    if kind == "snuba":
        return hard_votes(ids[:kept], written.names, np.vstack([written.train, written.trusted])[:kept], raw.classes)
    return soft_votes(ids[:kept], kind.removesuffix("-together"), np.vstack([train, trusted])[:kept], raw.classes)


def trusted_classes(raw: Raw) -> Ints:
    """(m,) class ids of the trusted rows."""
    ids = {name: c for c, name in enumerate(raw.classes)}
    unknown = [label for label in raw.trusted.labels if label not in ids]
    if unknown or not raw.trusted.labels:
        came = f"a trusted row has the label {unknown[0]!r}" if unknown else "there are no trusted rows"
        raise InvalidInputError(
            f"{came}; automatic sources learn from trusted rows with one of the classes {', '.join(raw.classes)} (--trusted)",
            code="trusted",
        )
    return np.array([ids[str(label)] for label in raw.trusted.labels], dtype=np.int64)


# primitives


def primitives_of(raw: Raw) -> Primitives:
    """What heuristics may look at: words of the texts and columns of the table; features where there are neither."""
    texts, columns = raw.columns(ColumnRole.TEXT), raw.columns(ColumnRole.FEATURE)
    parts = [_table_primitives(raw, name) for name in columns]
    if texts:
        train, trusted = (Content(rows.frame).texts(texts) for rows in (raw.train, raw.trusted))
        parts.insert(0, word_primitives(train, trusted))
    if not parts:
        parts = [_feature_primitives(raw)]
    found = Primitives(
        tuple(name for part in parts for name in part.names),
        np.hstack([part.trusted for part in parts]),
        np.hstack([part.train for part in parts]),
        np.concatenate([part.presence for part in parts]),
    )
    if not found.names:
        raise InvalidInputError(
            f"no word or value is in at least {LEAST_TRUSTED} trusted rows; Snuba needs more trusted rows (--trusted)",
            code="primitives",
        )
    return found


def word_primitives(train: Sequence[str], trusted: Sequence[str]) -> Primitives:
    """Words and pairs that are frequent enough to be voted with, at most `MOST_WORDS`: the most frequent in trusted rows."""
    words = Words.of([*train, *trusted], least=max(LEAST_TRUSTED, int(LEAST_COVERAGE * len(train))))
    seen = words.presence(trusted).toarray()
    counts = seen.sum(axis=0, dtype=np.int64)
    kept = np.sort(np.argsort(-counts, kind="stable")[:MOST_WORDS])
    kept = kept[counts[kept] >= LEAST_TRUSTED]
    names = tuple(words.names[v] for v in kept)
    return Primitives(names, seen[:, kept], Words(names).presence(train).toarray(), np.ones(len(names), dtype=bool))


def _table_primitives(raw: Raw, column: str) -> Primitives:
    """A number as it is; of anything else, whether it has one of its most frequent values."""
    cells = [rows.frame[column] for rows in (raw.trusted, raw.train)]
    numbers = [pd.to_numeric(one, errors="coerce") for one in cells]
    if all(bool(number.notna().eq(cell.notna()).all()) for number, cell in zip(numbers, cells, strict=True)):
        trusted, train = (one.to_numpy(dtype=np.float64, na_value=np.nan)[:, None] for one in numbers)
        trusted, train = (np.where(np.isinf(one), np.nan, one) for one in (trusted, train))
        return Primitives((column,), trusted, train, np.zeros(1, dtype=bool))
    words = [one.astype("str") for one in cells]
    counts = words[0][cells[0].notna()].value_counts()
    values = sorted(counts.index[counts >= LEAST_TRUSTED][:_MOST_VALUES].tolist())
    trusted, train = ((one.to_numpy()[:, None] == np.array(values, dtype=object)).astype(np.uint8) for one in words)
    return Primitives(
        tuple(f"{column} = {value}" for value in values), trusted, train, np.ones(len(values), dtype=bool)
    )


def _feature_primitives(raw: Raw) -> Primitives:
    train, trusted = raw.train.features, raw.trusted.features
    if train is None or trusted is None:
        raise InvalidInputError(
            "Snuba found neither texts, columns of a table nor features; name some (--text, --columns)",
            code="primitives",
        )
    names = tuple(f"feature {k + 1}" for k in range(train.shape[1]))
    return Primitives(names, trusted, train, np.zeros(len(names), dtype=bool))


def _affinity(raw: Raw, y: Ints, seed: int, progress: Progress) -> tuple[Float64s, Float64s]:
    """Soft votes on training (n, C) and trusted (m, C) images, stretched to one size; an empty cell is a black image."""
    columns = raw.columns(ColumnRole.IMAGE)
    if not columns:
        raise InvalidInputError(
            "there is no column of images; affinity compares images: name their column (--image), or use snuba",
            code="column",
        )
    names = [name for rows in (raw.train, raw.trusted) for name in Content(rows.frame).texts(columns[:1])]

    def images_at(rows: Ints) -> NDArray[np.uint8]:
        found = np.zeros((len(rows), _SIDE, _SIDE, 3), dtype=np.uint8)
        for k, i in enumerate(rows):
            if names[i]:
                found[k] = np.asarray(read_image(names[i], raw.media).resize((_SIDE, _SIDE)))
        return found

    maps_of = conv_maps(network(EFFICIENTNET)[0].whole) if has_efficientnet() else patch_maps
    return code_affinity(len(names), images_at, y, len(raw.classes), maps_of, seed, progress)


# tables of votes


def hard_votes(ids: Sequence[str], names: Sequence[str], votes: Ints, classes: Sequence[str]) -> pd.DataFrame:
    """A long table from class ids (n, J), −1 for no vote.

    >>> hard_votes(["a", "b"], ["rule"], np.array([[1], [-1]]), ["ham", "spam"])
      item source label
    0    a   rule  spam
    """
    rows, sources = np.nonzero(votes >= 0)
    said = [classes[c] for c in votes[rows, sources].tolist()]
    return long_table([ids[i] for i in rows.tolist()], [names[j] for j in sources.tolist()], said)


def soft_votes(ids: Sequence[str], name: str, beliefs: Float64s, classes: Sequence[str]) -> pd.DataFrame:
    """A long table from probabilities (n, C), NaN for no vote.

    >>> soft_votes(["a", "b"], "s", np.array([[0.25, 0.75], [np.nan, np.nan]]), ["ham", "spam"])
      item source label  probability
    0    a      s   ham         0.25
    1    a      s  spam         0.75
    """
    rows = np.flatnonzero(~np.isnan(beliefs).any(axis=1))
    votes = np.full((len(ids), len(classes)), -1)
    votes[rows] = np.arange(len(classes))
    return hard_votes(ids, [name] * len(classes), votes, classes).assign(probability=beliefs[rows].ravel())
