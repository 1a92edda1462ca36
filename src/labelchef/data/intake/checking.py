"""What people should know of joined rows before they go on: doubtful ids, leaks between splits, repeated texts, doubtful classes.

**The same text** is found by its normal form: lower case, single spaces. **Almost the same text** by MinHash: with the set A of
hashed triples of words of a text, and M = 32 random orders π_m of hash values,

    s_m(A) = min_{a ∈ A} π_m(a),        P[s_m(A) = s_m(B)] = |A ∩ B| / |A ∪ B|.

Texts that agree in all 4 values of one of 8 bands are compared with the first text of that band; those that agree in at least
three quarters of the 32 values are counted. At most 4 million triples are hashed, so that the time is bounded (seconds); of
larger data evenly spaced rows are looked at, and the finding says how many.
"""

import difflib
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from labelchef.base.arrays import Bools
from labelchef.base.intake import ColumnRole, FileRole, Finding, Plan, Progress, Severity
from labelchef.base.records import UNRESOLVED
from labelchef.base.validation import FEWEST
from labelchef.data.contents import LONGEST_KEY, is_key
from labelchef.data.copies import Copies, content_keys, equal_by_chance, feature_keys
from labelchef.data.intake.profiles import option
from labelchef.data.intake.raw import ID, Rows

ENOUGH_TRUSTED = 5
"""Trusted rows of a class: below it a warning is given."""
_ORDERS, _BANDS = 32, 8
_ALIKE = 0.75
_MOST_TRIPLES = 4_000_000
_SEED = 20
_MIX = np.uint64(0xBF58476D1CE4E5B9)


@dataclass(frozen=True)
class Joined:
    """Rows after the join, before they are looked through."""

    splits: Mapping[str, Rows]
    """train, trusted, test"""
    content: Mapping[str, ColumnRole]
    classes: tuple[str, ...]
    votes: pd.DataFrame
    plan: Plan
    media: Path | None = None

    def columns(self, role: ColumnRole) -> list[str]:
        """Content columns of a role."""
        return [name for name, found in self.content.items() if found is role]


def findings_of(joined: Joined, progress: Progress) -> list[Finding]:
    """Everything that is doubtful, in the order of the questions."""
    progress("checking", 0, 4)
    found = [*_ids(joined), *_rows(joined), *_columns(joined)]
    progress("checking", 1, 4)
    found += [*_trusted(joined), *_votes(joined), *_class_names(joined)]
    progress("checking", 2, 4)
    copies = _copies(joined)
    found += [*_said_of_copies(joined, copies), *_leaks(joined, copies.silent)]
    progress("checking", 3, 4)
    found += _near_duplicates(joined)
    progress("checking", 4, 4)
    return found


def all_numbers(labels: Iterable[str]) -> bool:
    """Whether labels are whole numbers."""
    return all(label.isascii() and label.isdecimal() for label in labels)


def ordered(labels: Iterable[str]) -> list[str]:
    """Class names in their order: numbers by value, else as text.

    >>> ordered(["10", "9"]), ordered(["b", "10", "a"])
    (['9', '10'], ['10', 'a', 'b'])
    """
    held = set(labels)
    return sorted(held, key=lambda name: (int(name), name)) if all_numbers(held) else sorted(held)


def suggestion(names: Sequence[str], known: Iterable[str]) -> str:
    """A class that one of the names may stand for.

    >>> suggestion(["Spam"], ["ham", "spam"])
    ". Did 'Spam' mean 'spam'?"
    """
    for name in names:
        close = _close(name, known)
        if close is not None:
            return f". Did {name!r} mean {close!r}?"
    return ""


def _close(name: str, known: Iterable[str]) -> str | None:
    by_form = {_normal(one): one for one in known if one != name}
    if _normal(name) in by_form:
        return by_form[_normal(name)]
    if len(name) < 4 or all_numbers([name]):
        return None
    found = difflib.get_close_matches(_normal(name), [form for form in by_form if not all_numbers([form])], 1, 0.85)
    return by_form[found[0]] if found else None


def _normal(text: str) -> str:
    return " ".join(text.casefold().split())


def _ids(joined: Joined) -> list[Finding]:
    keys = [key for rows in joined.splits.values() for key in rows.ids]
    wrong = [key for key in keys if not is_key(key)]
    if not wrong:
        return []
    return [
        Finding(
            "ids-unusable",
            Severity.ERROR,
            f"{len(wrong)} ids cannot be used, such as {wrong[0][:60]!r}; expected 1 to {LONGEST_KEY} printable characters "
            "without spaces around them. Mend the column, or name another: --id COLUMN",
            len(wrong),
            tuple(repr(key[:60]) for key in wrong[:5]),
        )
    ]


def _rows(joined: Joined) -> list[Finding]:
    found: list[Finding] = []
    train = joined.splits["train"]
    if len(train) == 0:
        found.append(
            Finding(
                "no-train",
                Severity.ERROR,
                "no row is left to learn from: all rows are trusted or test, or the file is empty. If labels of a column may be "
                "wrong: --labels COLUMN",
            )
        )
    learned = [
        name for role in (ColumnRole.TEXT, ColumnRole.IMAGE, ColumnRole.FEATURE) for name in joined.columns(role)
    ]
    if not learned and train.features is None:
        found.append(
            Finding(
                "no-content",
                Severity.ERROR,
                "no column is a text, an image or a feature, so there is nothing to learn from. Name one: --text COLUMN, "
                "--image COLUMN or --columns A,B",
            )
        )
    texts = joined.columns(ColumnRole.TEXT)
    if texts:
        empty = [
            str(key)
            for rows in joined.splits.values()
            for key in rows.frame[ID][_joined_text(rows.frame, texts).str.strip() == ""].tolist()
        ]
        if empty:
            found.append(
                Finding(
                    "empty-texts",
                    Severity.WARNING,
                    f"{len(empty)} rows have no text in {', '.join(map(repr, texts[:3]))}; the model learns nothing of them. "
                    "Remove them, or name the column with the text: --text COLUMN",
                    len(empty),
                    tuple(empty[:5]),
                )
            )
    return found


def _columns(joined: Joined) -> list[Finding]:
    found: list[Finding] = []
    wanted = (ColumnRole.FEATURE, ColumnRole.SHOWN)
    parts = [rows.frame for rows in joined.splits.values() if len(rows)]
    held = [
        {str(name): cells.to_numpy() for name, cells in part.items() if joined.content.get(str(name)) in wanted}
        for part in parts
    ]
    frame = {name: np.concatenate([part[name] for part in held]) for name in (held[0] if held else ())}
    features = joined.columns(ColumnRole.FEATURE) if frame else []
    constant = [name for name in features if len(frame[name]) > 1 and len(pd.unique(frame[name])) <= 1]
    if constant:
        found.append(
            Finding(
                "constant-columns",
                Severity.WARNING,
                f"{', '.join(map(repr, constant[:5]))} have one value in all rows and tell nothing; leave them out: "
                f"{option('ignore', constant)}",
                len(constant),
                tuple(constant[:5]),
            )
        )
    other = joined.columns(ColumnRole.TEXT) or joined.columns(ColumnRole.IMAGE)
    learnable = (
        features if other or not frame else (*features, *joined.columns(ColumnRole.SHOWN))
    )  # it may look like an id
    commas = [name for name in learnable if _decimal_commas(frame[name])]
    if commas:
        found.append(
            Finding(
                "decimal-commas",
                Severity.ERROR,
                f"{', '.join(map(repr, commas[:5]))} hold numbers with decimal commas, which would be read as names. Write them "
                f"with points, or leave them out: {option('ignore', commas)}",
                len(commas),
                tuple(commas[:5]),
            )
        )
    id_like = [name for name in features if name not in constant and _id_like(name, frame[name])]
    if id_like:
        found.append(
            Finding(
                "id-like-features",
                Severity.WARNING,
                f"{', '.join(map(repr, id_like[:5]))} look like ids (each value once) but the model would learn from them; show "
                f"them only: {option('shown', id_like)}",
                len(id_like),
                tuple(id_like[:5]),
            )
        )
    return found


def _decimal_commas(values: NDArray[Any]) -> bool:
    """Whether nearly all that is in a column of text are numbers with a comma, such as 0,75."""
    texts = [] if values.dtype.kind == "f" else [str(value).strip() for value in values.tolist() if value == value]
    numbers = [text for text in texts if re.fullmatch(r"[+-]?\d{1,3}(?:\.?\d{3})*(?:,\d+)?", text)]
    return len(numbers) > 0.9 * len(texts) and sum("," in text for text in texts) > 0.5 * len(texts)


def _id_like(name: str, values: NDArray[Any]) -> bool:
    filled = values[~pd.isna(values)]
    if len(filled) < 20 or len(pd.unique(filled)) < len(filled):
        return False
    if filled.dtype.kind == "f":
        counted = np.sort(filled)
        sequence = bool(np.array_equal(counted, counted[0] + np.arange(len(counted))))
        whole = bool(np.array_equal(counted, np.round(counted)))
        return sequence or (whole and name.lower().endswith(("id", "key", "index", "number", "nr", "no")))
    texts = list(map(str, filled.tolist()))
    return sum(map(len, texts)) <= 64 * len(texts) and not any(map(str.isspace, "".join(texts)))


def _trusted(joined: Joined) -> list[Finding]:
    rows = joined.splits["trusted"]
    named = joined.plan.of(FileRole.TRUSTED) or [one for one in joined.plan.files if one.named(ColumnRole.LABEL)]
    if len(rows) == 0 and named:
        return [
            Finding(
                "no-trusted",
                Severity.ERROR,
                f"{Path(named[0].path).name} should hold labels that are right, but no row of the data has one of them; check "
                "its ids and its column of labels, or leave it out: then the first answers become the trusted rows",
            )
        ]
    if len(rows) == 0:
        return [
            Finding(
                "no-trusted",
                Severity.NOTE,
                f"no row has a label that is known to be right: the first {FEWEST} answers are drawn by chance and become the "
                "trusted ones; figures follow then. If there are such labels, give a file with id and label: --trusted "
                "gold.csv; or name the column: --truth-column COLUMN",
            )
        ]
    if len(rows) == 1:
        why = "one row has a label that is known to be right; a few dozen are needed to steer by. Add rows to the trusted file"
        return [Finding("one-trusted", Severity.ERROR, why, 1, tuple(rows.ids))]
    counts = Counter(label for label in rows.labels if label is not None)
    few = [name for name in joined.classes if counts[name] < ENOUGH_TRUSTED]
    if not few:
        return []
    shown = tuple(f"{name}: {counts[name]}" for name in few[:5])
    return [
        Finding(
            "few-trusted",
            Severity.WARNING,
            f"{len(few)} of {len(joined.classes)} classes have fewer than {ENOUGH_TRUSTED} trusted rows "
            f"({', '.join(shown)}); what is measured of them is uncertain. Add rows to the trusted file",
            len(few),
            shown,
        )
    ]


def _votes(joined: Joined) -> list[Finding]:
    found: list[Finding] = []
    made = [one for role in (FileRole.RULES, FileRole.FUNCTIONS, FileRole.LLM) for one in joined.plan.of(role)]
    if joined.votes.empty:
        taught = "the trusted labels" if len(joined.splits["trusted"]) else "answers"
        if not made:
            found.append(
                Finding(
                    "no-votes",
                    Severity.WARNING,
                    f"no source says anything of the rows: only {taught} are learned from. Give votes (--votes FILE), a column "
                    "of labels (--labels COLUMN), rules (--rules FILE) or labelling functions (--functions FILE)",
                )
            )
        return found
    train = joined.splits["train"]
    here = joined.votes["item"].isin(set(train.ids))
    absent = sorted(set(joined.votes["source"][~here]) - set(joined.votes["source"][here]))
    if absent:
        found.append(
            Finding(
                "absent-sources",
                Severity.WARNING,
                f"{', '.join(map(repr, absent[:5]))} vote on no row to label, only on trusted or test rows; they are not used. "
                "Give their votes on the rows to label too",
                len(absent),
                tuple(absent[:5]),
            )
        )
    silent = len(set(train.ids) - set(joined.votes["item"].tolist()))
    if silent:
        found.append(
            Finding(
                "no-vote-on-rows",
                Severity.NOTE,
                f"no source says anything of {silent} of {len(train)} training rows; the model's own belief is used for them",
                silent,
            )
        )
    return found


def _class_names(joined: Joined) -> list[Finding]:
    found: list[Finding] = []
    known = {label for rows in joined.splits.values() for label in rows.labels if label is not None}
    said = set(joined.votes["label"].tolist())
    if len(joined.classes) < 2:
        found.append(
            Finding(
                "few-classes",
                Severity.ERROR,
                "no label names a class. Name the column of labels: --truth-column COLUMN; or, if they may be wrong: --labels "
                "COLUMN; or name all classes: --classes A,B"
                if not joined.classes
                else f"the classes are {list(joined.classes)}; expected two or more. Check the column of labels, or name them: "
                "--classes A,B",
                len(joined.classes),
                joined.classes,
            )
        )
    if len(joined.classes) > 1000:
        found.append(
            Finding(
                "many-classes",
                Severity.ERROR,
                f"there are {len(joined.classes)} classes, such as {joined.classes[0][:40]!r}; expected at most 1000. Is the "
                "column of labels the right one? --truth-column COLUMN, --labels COLUMN",
                len(joined.classes),
                tuple(name[:40] for name in joined.classes[:5]),
            )
        )
        return found
    only = ordered(said - known) if known else []
    if only:
        found.append(
            Finding(
                "classes-only-in-votes",
                Severity.WARNING,
                f"{', '.join(map(repr, only[:5]))} occur in votes but in no trusted row. If they are classes, add trusted rows; "
                f"if not, mend the votes{suggestion(only, known)}",
                len(only),
                tuple(only[:5]),
            )
        )
    pairs = [
        (name, close) for name in joined.classes if (close := _close(name, joined.classes)) is not None and name < close
    ]
    if pairs:
        cased = [pair for pair in pairs if _normal(pair[0]) == _normal(pair[1])]
        mistaken = any((one in known) != (other in known) for one, other in cased)
        named = "; ".join(f"{one!r} and {other!r}" for one, other in (cased if mistaken else pairs)[:5])
        found.append(
            Finding(
                "similar-classes",
                Severity.ERROR if mistaken else Severity.WARNING,
                f"the classes {named} differ little; if they are one, write them alike in all files"
                f"{'; or: --fold-case' if cased else ''}",
                len(pairs),
                tuple(f"{one} / {other}" for one, other in pairs[:5]),
            )
        )
    return found


def _joined_text(frame: pd.DataFrame, columns: Sequence[str]) -> pd.Series:
    whole = frame[columns[0]].fillna("")
    for name in columns[1:]:
        whole = whole + " \n " + frame[name].fillna("")
    return whole.astype("str")


def _forms(joined: Joined) -> dict[str, list[str]]:
    """What is compared between rows, a text a row: the normal form of their texts, else of all their features."""
    texts = joined.columns(ColumnRole.TEXT)
    features = joined.columns(ColumnRole.FEATURE)
    chosen = set(features)
    forms: dict[str, list[str]] = {}
    for split, rows in joined.splits.items():
        if texts:
            forms[split] = [_normal(text) for text in _joined_text(rows.frame, texts).tolist()]
        elif len(features) >= 3 and rows.features is None:
            held = np.array([cells.tolist() for name, cells in rows.frame.items() if name in chosen], dtype=object)
            forms[split] = ["\n".join(map(str, line)) for line in held.T.tolist()]
        elif rows.features is not None and not joined.columns(ColumnRole.IMAGE):
            forms[split] = [row.tobytes().hex() for row in rows.features]
        else:
            forms[split] = [""] * len(rows)
    return forms


def _copies(joined: Joined) -> Copies:
    """Which training rows are copies: as `CampaignData.with_copies` will find them."""
    (train, *known), columns, images = joined.splits.values(), list(joined.content), joined.columns(ColumnRole.IMAGE)
    keys, *others = (content_keys([rows.frame[columns]], images, joined.media) for rows in (train, *known))
    if not keys.any() and train.features is not None:
        keys, *others = feature_keys([rows.features for rows in (train, *known) if rows.features is not None])
        if equal_by_chance(train.features, keys):
            return Copies(np.arange(len(train)))
    labels = [label for rows in (train, *known) for label in rows.labels]
    ids = np.array([UNRESOLVED if one is None else joined.classes.index(one) for one in labels], dtype=np.int64)
    return Copies.found(keys, ids[: len(train)], np.concatenate(others), ids[len(train) :], None)[0]


def _said_of_copies(joined: Joined, copies: Copies) -> list[Finding]:
    ids, inside = np.array(joined.splits["train"].ids, dtype=object), copies.of < len(copies.of)
    what = "text" if joined.columns(ColumnRole.TEXT) else "content"
    told = (
        ("copies", copies.silent & inside, f"rows are copies of others (same {what}): one answer labels all of them"),
        (
            "copies-of-known",
            ~inside,
            f"rows are copies of trusted or test rows (same {what}): they have their label, are not asked and do not train",
        ),
    )
    return [
        Finding(code, Severity.NOTE, f"{rows.sum()} training {said}", int(rows.sum()), tuple(ids[rows][:5]))
        for code, rows, said in told
        if rows.any()
    ]


def _leaks(joined: Joined, silent: Bools) -> list[Finding]:
    """Rows with the same text up to case and spaces in two splits, or in train; copies in train (`silent`) don't count."""
    forms = _forms(joined)
    forms["train"] = ["" if copy else form for form, copy in zip(forms["train"], silent, strict=True)]
    found: list[Finding] = []
    what = "text" if joined.columns(ColumnRole.TEXT) else "content"
    for split, against in (("train", "trusted"), ("train", "test"), ("trusted", "test")):
        there = set(forms[against]) - {""}
        ids = [key for key, form in zip(joined.splits[split].ids, forms[split], strict=True) if form in there]
        if not ids:
            continue
        if split == "train":
            done = (
                "They stay in train; figures on these rows are too good" if against == "test" else "They stay in train"
            )
        else:
            done = "The last measurement is too good by them: remove them from one of the files"
        found.append(
            Finding(
                f"leak-{split}-{against}",
                Severity.WARNING,
                f"{len(ids)} {split} rows have the same {what} as a {against} row, up to case and spaces. {done}",
                len(ids),
                tuple(ids[:5]),
            )
        )
    train = Counter(form for form in forms["train"] if form)
    repeated = sum(count - 1 for count in train.values() if count > 1)
    if repeated:
        first = {form for form, count in train.items() if count > 1}
        ids = [key for key, form in zip(joined.splits["train"].ids, forms["train"], strict=True) if form in first]
        found.append(
            Finding(
                "repeated-texts",
                Severity.NOTE,
                f"{repeated} training rows repeat the {what} of another one, up to case and spaces; they are kept",
                repeated,
                tuple(ids[:5]),
            )
        )
    return found


def _near_duplicates(joined: Joined) -> list[Finding]:
    texts = joined.columns(ColumnRole.TEXT)
    if not texts:
        return []
    forms = _forms(joined)
    held = [
        (split, key, form)
        for split, rows in joined.splits.items()
        for key, form in zip(rows.ids, forms[split], strict=True)
    ]
    distinct = {form: (split, key) for split, key, form in held if len(form.split()) >= 4}
    names, looked = list(distinct), len(distinct)
    triples = sum(len(form.split()) for form in names)
    if triples > _MOST_TRIPLES:
        names = names[:: -(-triples // _MOST_TRIPLES)]
    pairs = near_duplicates(names)
    if not pairs:
        return []
    across = [(a, b) for a, b in pairs if distinct[names[a]][0] != distinct[names[b]][0]]
    some = f" (of {len(names)} texts looked at)" if len(names) < looked else ""
    shown = across or pairs
    return [
        Finding(
            "near-duplicates",
            Severity.WARNING if across else Severity.NOTE,
            f"rows that have almost the same text as another one: {len(pairs)}{some}; they are kept"
            + (
                f". {len(across)} of them have it in another part of the data: figures on those are too good"
                if across
                else ""
            ),
            len(pairs),
            tuple(f"{distinct[names[a]][1]} ~ {distinct[names[b]][1]}" for a, b in shown[:5]),
        )
    ]


def near_duplicates(texts: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs (text, an earlier text that is almost the same), at most one for each text.

    >>> one = "the quick brown fox jumps over the lazy dog near the old river bank today and sleeps"
    >>> near_duplicates([one, "something else is written in this line", one + " well"])
    [(2, 0)]
    """
    if len(texts) < 2:
        return []
    signatures = _signatures(texts)
    width = _ORDERS // _BANDS
    twin: dict[int, int] = {}
    for band in range(_BANDS):
        part = signatures[:, band * width : (band + 1) * width]
        mixed = np.zeros(len(texts), dtype=np.uint64)
        for values in part.T:
            mixed = (mixed ^ values) * _MIX
        _, first, inverse = np.unique(mixed, return_index=True, return_inverse=True)
        leader = first[inverse]
        others = np.flatnonzero(leader != np.arange(len(texts)))
        alike = (signatures[others] == signatures[leader[others]]).mean(axis=1) >= _ALIKE
        for row in others[alike].tolist():
            twin.setdefault(row, int(leader[row]))
    return sorted(twin.items())


def _signatures(texts: Sequence[str]) -> NDArray[np.uint64]:
    """(n, 32) MinHash values of the triples of words of each text; a text with fewer than three words is one triple."""
    words = [text.split() for text in texts]
    padded = [line if len(line) >= 3 else [*line, *("\0",) * (3 - len(line))] for line in words]
    codes, found = pd.factorize(np.array([word for line in padded for word in line], dtype=object))
    hashed = np.array([zlib.crc32(str(word).encode()) for word in found], dtype=np.uint64)[codes]
    counts = np.array([len(line) for line in padded])
    last = np.cumsum(counts)
    whole = np.ones(len(hashed), dtype=bool)  # a triple begins at every word but the last two of a text
    whole[last - 1] = whole[last - 2] = False
    a, b, c = (np.uint64(factor) for factor in (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D))
    triples = (hashed[:-2] * a ^ hashed[1:-1] * b ^ hashed[2:] * c)[whole[:-2]]
    starts = np.concatenate([[0], np.cumsum(counts - 2)[:-1]])
    draws = np.random.default_rng(_SEED).integers(1, 1 << 63, size=(_ORDERS, 2), dtype=np.uint64)
    signatures = np.empty((len(texts), _ORDERS), dtype=np.uint64)
    for m, (factor, shift) in enumerate(draws):
        mixed = triples * (factor | np.uint64(1)) + shift
        mixed ^= mixed >> np.uint64(29)
        mixed *= _MIX
        mixed ^= mixed >> np.uint64(32)
        signatures[:, m] = np.minimum.reduceat(mixed, starts)
    return signatures
