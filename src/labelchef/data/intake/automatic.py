"""Automatic sources by name: from joined rows to a long table of votes.

    snuba             `believe.snuba`: words, columns or encoded features → heuristics; each is a source
    snuba-together    the same heuristics as one source: what their label aggregator believes, as soft votes
    affinity          `believe.affinity`: groups of similar images as one source with soft votes

All of them learn from the trusted rows, and their votes there are cross-fitted: every trusted row is voted on by what was made
without it. These votes also decide whether there is a source at all. Of n trusted rows that are voted on, k rightly,
n_v of them for class v, whose share among the trusted rows is f(v), there are votes only if

    P(Binomial(n, Σ_v n_v f(v) / n) ≥ k) ≤ 0.1          (heuristics of Snuba: what they believe together)

A source that is no better than chance would not only be useless: beside good ones it can make them worse. It is one decision
for all heuristics, so the votes on trusted rows stay honest.

Interactive Weak Supervision needs a person: `proposals_of` starts it, `believe.rules.apply_rules` gives the votes of the rules
that were chosen.

The table has the columns item (id), source, label, and probability where votes are soft: then an item and source have a row for
each class, and their probabilities sum to 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import binom

from labelchef.base.arrays import Float64s, Floats, Ints
from labelchef.base.errors import InvalidInputError
from labelchef.base.intake import ColumnRole, Progress, no_progress
from labelchef.believe.affinity import AffinityOptions, code_affinity, conv_maps, patch_maps
from labelchef.believe.interactive import ProposalOptions, Proposals
from labelchef.believe.snuba import Primitives, SnubaOptions, Written, write_heuristics
from labelchef.believe.vote_forms import long_table
from labelchef.believe.words import Words
from labelchef.data.encoders.images import has_efficientnet, read_image
from labelchef.data.encoders.protocol import Content
from labelchef.data.intake.raw import Raw, Rows

AUTOMATIC: Mapping[str, str] = {
    "snuba": "rules from words or columns, written from the trusted rows; each is a source",
    "snuba-together": "the same rules as one source with probabilities",
    "affinity": "groups of similar images, named by the trusted rows",
}
"""Name → what it does, for help texts."""

MOST_WORDS = 500
DOUBT = 0.1
"""Largest probability that votes on trusted rows are as good by chance."""
_MOST_VALUES = 20
_SIDE = 96


@dataclass(frozen=True)
class Blocks:
    """Encoded rows: training (n, d) and trusted (m, d)."""

    train: Floats
    trusted: Floats


def make_votes(
    kind: str, raw: Raw, blocks: Blocks | None = None, seed: int = 0, progress: Progress = no_progress
) -> pd.DataFrame:
    """The votes of an automatic source on training and trusted rows.

    `blocks` serve Snuba where there is neither text nor a column of a table. The table is empty where nothing was found that is
    better than chance.
    """
    if kind not in AUTOMATIC:
        raise InvalidInputError(
            f"there is no automatic source {kind!r}; expected one of: {', '.join(AUTOMATIC)}", code="automatic"
        )
    y = trusted_classes(raw)
    if kind == "affinity":
        return _affinity(raw, y, seed, progress)
    written = write_heuristics(primitives_of(raw, blocks), y, raw.classes, seed=seed, progress=progress)
    if not better_than_chance(written.trusted_beliefs, y):
        return long_table((), (), (), None if kind == "snuba" else ())
    return votes_of(written, raw) if kind == "snuba" else beliefs_of(written, raw)


def better_than_chance(beliefs: Float64s, y: Ints) -> bool:
    """Whether cross-fitted votes (m, C) on trusted rows of classes y (m,), NaN for none, are better than the class shares.

    >>> y = np.array([0, 1] * 10)
    >>> better_than_chance(np.eye(2)[y], y), better_than_chance(np.eye(2)[np.zeros(20, dtype=int)], y)
    (True, False)
    """
    heard = ~np.isnan(beliefs).any(axis=1)
    if not heard.any():
        return False
    said = beliefs[heard].argmax(axis=1)
    shares = np.bincount(y, minlength=beliefs.shape[1]) / len(y)
    right = int((said == y[heard]).sum())
    return bool(binom.sf(right - 1, len(said), shares[said].mean()) <= DOUBT)


def votes_of(written: Written, raw: Raw) -> pd.DataFrame:
    """Every heuristic as a source."""
    ids = [*_ids(raw.train), *_ids(raw.trusted)]
    return hard_votes(ids, written.names, np.vstack([written.train, written.trusted]), raw.classes)


def beliefs_of(written: Written, raw: Raw) -> pd.DataFrame:
    """All heuristics as the source `snuba`."""
    ids = [*_ids(raw.train), *_ids(raw.trusted)]
    return soft_votes(ids, "snuba", np.vstack([written.train_beliefs, written.trusted_beliefs]), raw.classes)


def proposals_of(
    raw: Raw,
    column: str | None = None,
    blocks: Blocks | None = None,
    options: ProposalOptions | None = None,
    seed: int = 0,
) -> Proposals:
    """Rules to be proposed for a text column, the first one if none is named; with blocks, words are compared by them."""
    texts = _columns(raw, ColumnRole.TEXT)
    if column is None and texts:
        column = texts[0]
    if column is None or column not in texts:
        what = "there is no text column" if column is None else f"{column!r} is no text column; there are {list(texts)}"
        raise InvalidInputError(
            f"{what}: rules are proposed for texts; name the column of texts (--text)", code="column"
        )
    return Proposals(
        Content(raw.train.frame).texts([column]),
        raw.classes,
        column=column,
        trusted_texts=Content(raw.trusted.frame).texts([column]),
        trusted_labels=[str(label) for label in raw.trusted.labels],
        items=None if blocks is None else blocks.train,
        options=options,
        seed=seed,
    )


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


def primitives_of(raw: Raw, blocks: Blocks | None = None, options: SnubaOptions | None = None) -> Primitives:
    """What heuristics may look at: words of the texts and columns of the table; encoded features where there are neither."""
    options = options or SnubaOptions()
    parts: list[Primitives] = []
    texts = _columns(raw, ColumnRole.TEXT)
    if texts:
        both = [Content(rows.frame).texts(texts) for rows in (raw.train, raw.trusted)]
        parts.append(word_primitives(both[0], both[1], options))
    parts += [_table_primitives(raw, name, options) for name in _columns(raw, ColumnRole.FEATURE)]
    if not parts:
        parts.append(_encoded_primitives(raw, blocks))
    found = Primitives(
        tuple(name for part in parts for name in part.names),
        np.hstack([part.trusted for part in parts]),
        np.hstack([part.train for part in parts]),
        np.concatenate([part.presence for part in parts]),
    )
    if not found.names:
        raise InvalidInputError(
            f"no word or value is in at least {options.least_trusted} trusted rows; Snuba needs more trusted rows (--trusted)",
            code="primitives",
        )
    return found


def word_primitives(train: Sequence[str], trusted: Sequence[str], options: SnubaOptions) -> Primitives:
    """Words and pairs that are frequent enough to be voted with, at most `MOST_WORDS`: the most frequent in trusted rows."""
    least = max(options.least_trusted, int(options.least_coverage * len(train)))
    words = Words.of([*train, *trusted], least=least)
    seen = words.presence(trusted)
    counts = np.asarray(seen.sum(axis=0)).ravel()
    kept = np.flatnonzero(counts >= options.least_trusted)
    kept = np.sort(kept[np.argsort(-counts[kept], kind="stable")][:MOST_WORDS])
    names = tuple(words.names[v] for v in kept)
    return Primitives(
        names,
        np.asarray(seen[:, kept].todense()),
        np.asarray(Words(names).presence(train).todense()),
        np.ones(len(names), dtype=bool),
    )


def _table_primitives(raw: Raw, column: str, options: SnubaOptions) -> Primitives:
    """A number as it is; of anything else, whether it has one of its most frequent values."""
    cells = [rows.frame[column] for rows in (raw.trusted, raw.train)]
    numbers = [pd.to_numeric(one, errors="coerce") for one in cells]
    if all(bool(number.notna().eq(cell.notna()).all()) for number, cell in zip(numbers, cells, strict=True)):
        trusted, train = (one.to_numpy(dtype=np.float64, na_value=np.nan)[:, None] for one in numbers)
        trusted, train = (np.where(np.isinf(one), np.nan, one) for one in (trusted, train))
        return Primitives((column,), trusted, train, np.zeros(1, dtype=bool))
    words = [one.astype("str") for one in cells]
    counts = words[0][cells[0].notna()].value_counts()
    values = sorted(counts.index[counts >= options.least_trusted][:_MOST_VALUES].tolist())
    trusted, train = (
        np.column_stack([np.zeros((len(one), 0), dtype=np.uint8), *((one == value).to_numpy() for value in values)])
        for one in words
    )
    names = tuple(f"{column} = {value}" for value in values)
    return Primitives(names, trusted.astype(np.uint8), train.astype(np.uint8), np.ones(len(names), dtype=bool))


def _encoded_primitives(raw: Raw, blocks: Blocks | None) -> Primitives:
    if blocks is not None:
        train, trusted = blocks.train, blocks.trusted
    elif raw.train.features is not None and raw.trusted.features is not None:
        train, trusted = raw.train.features, raw.trusted.features
    else:
        raise InvalidInputError(
            "Snuba found neither texts, columns of a table nor features; name some (--text, --columns)",
            code="primitives",
        )
    names = tuple(f"feature {k + 1}" for k in range(train.shape[1]))
    return Primitives(names, trusted, train, np.zeros(len(names), dtype=bool))


def _columns(raw: Raw, role: ColumnRole) -> tuple[str, ...]:
    return tuple(name for name, found in raw.content.items() if found is role)


def _ids(rows: Rows) -> list[str]:
    return [str(key) for key in rows.frame["id"].tolist()]


# images


@dataclass(frozen=True)
class FilePictures:
    """Images of files, stretched to one size; an empty cell is a black image."""

    names: tuple[str, ...]
    media: Path | None
    side: int = _SIDE

    def __len__(self) -> int:
        return len(self.names)

    def of(self, rows: Ints) -> NDArray[Any]:
        """(k, side, side, 3) in uint8."""
        found = np.zeros((len(rows), self.side, self.side, 3), dtype=np.uint8)
        for k, i in enumerate(rows):
            if self.names[i]:
                found[k] = np.asarray(read_image(self.names[i], self.media).resize((self.side, self.side)))
        return found


def _affinity(raw: Raw, y: Ints, seed: int, progress: Progress) -> pd.DataFrame:
    columns = _columns(raw, ColumnRole.IMAGE)
    if not columns:
        raise InvalidInputError(
            "there is no column of images; affinity compares images: name their column (--image), or use snuba",
            code="column",
        )
    names = [name for rows in (raw.train, raw.trusted) for name in Content(rows.frame).texts(columns[:1])]
    maps = conv_maps() if has_efficientnet() else patch_maps
    coded = code_affinity(
        FilePictures(tuple(names), raw.media), y, len(raw.classes), maps, AffinityOptions(), seed, progress
    )
    if not better_than_chance(coded.trusted, y):
        return long_table((), (), (), ())
    ids = [*_ids(raw.train), *_ids(raw.trusted)]
    return soft_votes(ids, "affinity", np.vstack([coded.train, coded.trusted]), raw.classes)


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
    items = [ids[i] for i in rows.tolist() for _ in classes]
    return long_table(items, [name] * len(items), list(classes) * len(rows), beliefs[rows].ravel())
