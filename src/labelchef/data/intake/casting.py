"""What sources say, from all files, as one long table (item, source, label[, probability]), and the classes that it names."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from labelchef.base.errors import InvalidInputError
from labelchef.base.intake import ColumnRole, FileRole, Severity
from labelchef.believe.vote_forms import PROBABILITY, VOTE_COLUMNS, WEAK_SOURCE, long_table
from labelchef.data.files import formats
from labelchef.data.intake import checking
from labelchef.data.intake.matching import Matcher, OpenFile, Pool, some
from labelchef.data.intake.profiles import NO_LABEL, NO_VOTE, numbers_of

_MOST_VOTERS = 25
"""Of an item, where only numbers of votes are known: with more, their shares say as much, and they are one source."""
_SEED = 20


class Casting:
    """Collects the votes of the files of one plan."""

    def __init__(self, matcher: Matcher) -> None:
        self.matcher, self.plan = matcher, matcher.plan
        self.votes: list[pd.DataFrame] = []

    def collect(self, pool: Pool, more_votes: pd.DataFrame | None) -> None:
        """Collect the votes of all files and `more_votes`; a source's name that two files use gets the file behind it."""
        sources: Counter[str] = Counter()
        for one in self.matcher.files:
            found = self._votes_of(pool, one)
            taken = {name for frame in found for name in frame["source"].unique().tolist() if sources[name]}
            for frame in found:
                own = [f"{name} ({one.stem})" if name in taken else name for name in frame["source"].tolist()]
                sources.update(set(own))
                self.votes.append(frame.assign(source=pd.array(own, dtype="str")))
        if more_votes is not None:
            lacking = [name for name in VOTE_COLUMNS if name not in more_votes.columns]
            if lacking:
                raise InvalidInputError(
                    f"more votes have the columns {list(more_votes.columns)}; expected item, source and label",
                    code="votes",
                )
            columns = [*VOTE_COLUMNS, *([PROBABILITY] if PROBABILITY in more_votes.columns else [])]
            frame = more_votes[columns].dropna(subset=list(VOTE_COLUMNS)).reset_index(drop=True)
            self.votes.append(frame.astype(dict.fromkeys(VOTE_COLUMNS, "str")))

    def _votes_of(self, pool: Pool, one: OpenFile) -> list[pd.DataFrame]:
        role = one.plan.role
        if role is FileRole.VOTES and one.plan.named(ColumnRole.VOTER):
            return self._long(pool, one)
        texts, arrays, probabilities = (
            one.texts(ColumnRole.SOURCE),
            one.arrays(ColumnRole.SOURCE),
            one.texts(ColumnRole.CLASS),
        )
        if not (texts or arrays or probabilities):
            if role is FileRole.VOTES:
                self.matcher.find(
                    "no-votes-in-file",
                    Severity.ERROR,
                    f"{one.title} is votes but no column of it is a source; it has "
                    f"{list(one.table.columns)[:10]}. Set the columns' "
                    "roles on the page, or give a long table with item, source and label",
                )
            return []
        if role in (FileRole.VOTES, FileRole.WEAK):
            keys = self.matcher.keys_of(pool, one, own=False)
            if keys is not None:
                self.matcher.tell_unmatched(one, [key for key in keys if key is not None], set(pool.row_of))
        else:
            keys = self._labelled_keys(pool, one)
        if keys is None:
            return []
        found: list[pd.DataFrame] = []
        single = role is FileRole.VOTES and len(texts) == 1 and not arrays
        for name in texts:
            source = one.stem if single and name.lower() in ("label", "labels", "y", "class", "vote") else name
            found.append(_hard(keys, source, one.column(name).tolist()))
        for name in arrays:
            values = np.asarray(one.table.vectors[name])
            for j in range(values.shape[1]):
                column = [formats.text_of(value) for value in values[:, j].tolist()]
                found.append(_hard(keys, f"{name}_{j}", column))
        if probabilities:
            found += self._soft(one, keys, probabilities)
        return [frame for frame in found if len(frame)]

    def _labelled_keys(self, pool: Pool, one: OpenFile) -> list[str | None]:
        """The id of each row whose source columns are votes: not those whose label comes from the same column."""
        keys = self.matcher.item_keys(pool, one)
        if one.plan.named(ColumnRole.SPLIT) and not one.plan.named(ColumnRole.LABEL):
            return [None if key is None or pool.split[pool.row_of[key]] != "train" else key for key in keys]
        return keys

    def _long(self, pool: Pool, one: OpenFile) -> list[pd.DataFrame]:
        keys = self.matcher.keys_of(pool, one, own=False)
        if keys is None:
            return []
        self.matcher.tell_unmatched(one, [key for key in keys if key is not None], set(pool.row_of))
        voter, vote = one.plan.named(ColumnRole.VOTER)[0], next(iter(one.plan.named(ColumnRole.VOTE)), None)
        if vote is None:
            self.matcher.find(
                "no-label",
                Severity.ERROR,
                f"{one.title} has voters but no column with their labels; set its role: vote",
            )
            return []
        frame = pd.DataFrame({"item": keys, "source": one.column(voter).tolist(), "label": one.column(vote).tolist()})
        likely = next(iter(one.texts(ColumnRole.PROBABILITY)), None)
        if likely is not None:
            frame[PROBABILITY] = numbers_of(one.column(likely))
            wrong = int((frame[PROBABILITY].isna() | ~frame[PROBABILITY].between(0, 1)).sum())
            if wrong:
                self.matcher.find(
                    "probabilities",
                    Severity.WARNING,
                    f"{one.title}: {wrong} rows have no probability between 0 and 1 in {likely!r}; they are no votes",
                    count=wrong,
                )
                frame = frame[frame[PROBABILITY].between(0, 1)]
        return [frame.dropna(subset=list(VOTE_COLUMNS)).reset_index(drop=True)]

    def _soft(self, one: OpenFile, keys: list[str | None], names: Sequence[str]) -> list[pd.DataFrame]:
        values = np.stack([numbers_of(one.column(name)) for name in names], axis=1)
        total = values.sum(axis=1)
        if np.nanmax(values, initial=0) > 1 and bool(((values == np.round(values)) & (values >= 0)).all()):
            if total.max() <= _MOST_VOTERS:
                return [_counted(keys, class_names(names), values.astype(np.int64))]
            values = values / np.maximum(total, 1)[:, None]
            total = values.sum(axis=1)
        bad = ~np.isfinite(total) | (np.abs(total - 1) > 0.02) | (values < 0).any(axis=1)
        if bad.any():
            self.matcher.find(
                "probabilities",
                Severity.WARNING,
                f"{one.title}: {int(bad.sum())} of {len(bad)} rows of probabilities do not sum to 1; they are no votes",
                [f"row {k + 1}" for k in np.flatnonzero(bad)[:5]],
                int(bad.sum()),
            )
        source = WEAK_SOURCE if len(self.matcher.of(FileRole.WEAK)) <= 1 else one.stem
        classes = class_names(names)
        rows, columns = np.nonzero((values > 0) & ~bad[:, None])
        frame = pd.DataFrame(
            {
                "item": [keys[row] for row in rows.tolist()],
                "source": source,
                "label": [classes[column] for column in columns.tolist()],
                PROBABILITY: values[rows, columns],
            }
        )
        return [frame.dropna(subset=["item"]).reset_index(drop=True)]

    def classes(self, pool: Pool) -> tuple[tuple[str, ...], pd.DataFrame]:
        """The classes in their order, and the tidy votes for them."""
        if self.plan.fold_case:
            self._fold_case(pool)
        votes = self._tidy(pool)
        if self.plan.classes is not None and not checking.all_numbers(self.plan.classes):
            called = {str(k): name for k, name in enumerate(self.plan.classes)}
            if {label for label in pool.labels if label is not None} <= set(called):
                pool.labels = [None if label is None else called[label] for label in pool.labels]
        trusted = {label for label in pool.labels if label is not None}
        said = set(votes["label"].unique().tolist())
        given = self.plan.classes
        if given is not None:
            votes = self._only_given(votes, given)
            outside = sorted(trusted - set(given))
            if outside:
                self.matcher.find(
                    "unknown-class",
                    Severity.ERROR,
                    f"the labels {some(outside)} of trusted or test rows are none of the classes {some(given)}"
                    f"{checking.suggestion(outside, given)}. Add them: --classes; or mend the file",
                    outside,
                )
                for k, label in enumerate(pool.labels):
                    if label in outside:
                        pool.labels[k] = None
                        pool.split[k] = "train" if pool.split[k] in ("trusted", "test") else pool.split[k]
            return given, votes
        if trusted and said and checking.all_numbers(said) != checking.all_numbers(trusted) and not said & trusted:
            numbers, names = ("votes", "trusted labels") if checking.all_numbers(said) else ("trusted labels", "votes")
            self.matcher.find(
                "class-numbers",
                Severity.ERROR,
                f"the {numbers} are numbers ({some(said if numbers == 'votes' else trusted)}), the {names} are names "
                f"({some(trusted if numbers == 'votes' else said)}); which is which is unknown. Name the "
                "classes in the order of their "
                "numbers, from 0: --classes name0,name1",
                count=len(said),
            )
        return tuple(checking.ordered(trusted | said)), votes

    def _fold_case(self, pool: Pool) -> None:
        """Write labels alike that differ in case only: as the classes that were named, else as most trusted rows or votes do."""
        names = [pd.Series([label for label in pool.labels if label is not None], dtype="str")]
        counts = pd.concat([*names, *(frame["label"] for frame in self.votes)]).value_counts()
        trusted = names[0].value_counts()
        order = sorted(counts.index, key=lambda name: (-int(trusted.get(name, 0)), -int(counts[name]), name))
        forms = {name.casefold(): name for name in reversed([*(self.plan.classes or ()), *order])}
        pool.labels = [None if label is None else forms[label.casefold()] for label in pool.labels]
        to = {name: forms[name.casefold()] for name in order}
        self.votes = [frame.assign(label=frame["label"].map(to).astype("str")) for frame in self.votes]

    def _only_given(self, votes: pd.DataFrame, given: tuple[str, ...]) -> pd.DataFrame:
        """Votes for the classes that were named; numbers stand for their positions where no class is called by a number."""
        if not checking.all_numbers(given):
            numbers = {str(k): name for k, name in enumerate(given)}
            votes = votes.assign(label=votes["label"].replace(numbers).astype("str"))
        unknown = ~votes["label"].isin(given)
        if unknown.any():
            names = sorted(votes["label"][unknown].unique().tolist())
            cased = bool(set(map(str.casefold, names)) & set(map(str.casefold, given)))
            self.matcher.find(
                "unknown-class",
                Severity.ERROR if cased else Severity.WARNING,
                f"{int(unknown.sum())} votes are for {some(names)}, none of the classes {some(given)}"
                f"{checking.suggestion(names, given)}; they are left out. Add the class: --classes; or mend the votes"
                f"{'; or: --fold-case' if cased else ''}",
                names,
                int(unknown.sum()),
            )
        return votes[~unknown].reset_index(drop=True)

    def _tidy(self, pool: Pool) -> pd.DataFrame:
        """All votes on known items, each source once an item, in a fixed order."""
        soft = any(PROBABILITY in frame.columns for frame in self.votes)
        columns = [*VOTE_COLUMNS, *([PROBABILITY] if soft else [])]
        if not self.votes:
            return long_table((), (), ())
        held = [f if not soft or PROBABILITY in f.columns else f.assign(**{PROBABILITY: 1.0}) for f in self.votes]
        votes = pd.concat([frame[columns] for frame in held], ignore_index=True)
        votes = votes.astype(dict.fromkeys(VOTE_COLUMNS, "str"))
        known = set(self.plan.classes or ()) | {label for label in pool.labels if label is not None}
        words = votes["label"].str.strip().str.lower().isin(NO_VOTE) & ~votes["label"].isin(known - NO_LABEL)
        votes = votes[~words & votes["item"].isin(set(pool.row_of))].drop_duplicates(ignore_index=True)
        keys = ["item", "source"]
        again = votes.duplicated([*keys, *(["label"] if soft else [])], keep=False)
        if soft:
            total = votes.groupby(keys)[PROBABILITY].transform("sum")
            again = again | (total > 1.02)
        if again.any():
            wrong = votes[again].drop_duplicates(keys)
            pairs = pd.MultiIndex.from_frame(votes[keys]).isin(pd.MultiIndex.from_frame(wrong[keys]))
            self.matcher.find(
                "contradictory-votes",
                Severity.WARNING,
                f"{len(wrong)} times a source says two things of one item; these votes are left out",
                sorted(f"{source} on {item}" for item, source in zip(wrong["item"], wrong["source"], strict=True)),
            )
            votes = votes[~pairs]
        at = votes["item"].map(pool.row_of)
        order = pd.DataFrame({"at": at, "source": votes["source"], "label": votes["label"]}).sort_values(
            ["at", "source", "label"], kind="stable"
        )
        return votes.loc[order.index].reset_index(drop=True)


def _counted(keys: Sequence[str | None], classes: Sequence[str], counts: NDArray[np.int64]) -> pd.DataFrame:
    """A vote a person, of counts (n, C). Who gave which is unknown: they are dealt by chance, in the order of the ids."""
    rng, rows = np.random.default_rng(_SEED), list[tuple[str, str, str]]()
    for key, row in sorted((key, row) for row, key in enumerate(keys) if key is not None):
        dealt = rng.permutation(np.repeat(np.arange(len(classes)), counts[row])).tolist()
        rows += [(key, f"vote {j + 1}", classes[c]) for j, c in enumerate(dealt)]
    return pd.DataFrame(rows, columns=list(VOTE_COLUMNS), dtype="str")


def class_names(columns: Sequence[str]) -> list[str]:
    """The classes that columns of probabilities are named by, without what all names begin with.

    >>> class_names(["ham", "spam"]), class_names(["p_ham", "p_spam"]), class_names(["prob(0)", "prob(1)"])
    (['ham', 'spam'], ['ham', 'spam'], ['0', '1'])
    """
    for prefix in ("probability_", "proba_", "prob_", "p_", "probability ", "prob ", "p "):
        if all(name.lower().startswith(prefix) and len(name) > len(prefix) for name in columns):
            return [name[len(prefix) :] for name in columns]
    if all(name.endswith(")") and name.lower().startswith(("p(", "prob(")) for name in columns):
        return [name[name.index("(") + 1 : -1] for name in columns]
    return list(columns)


def _hard(keys: Sequence[str | None], source: str, labels: Sequence[Any]) -> pd.DataFrame:
    kept = [(key, label) for key, label in zip(keys, labels, strict=True) if key is not None and isinstance(label, str)]
    return long_table([key for key, _ in kept], [source] * len(kept), [label for _, label in kept])
