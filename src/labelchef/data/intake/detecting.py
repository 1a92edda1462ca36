"""Roles of files and columns, found out from their names and contents.

What the user said (`Given`) always wins. Everything else follows fixed rules, in this order; no random choice, no model.

A file                                                             is
- with the columns of a long table (item, source, label)            votes
- of which every column but the id is a source's votes              votes (wide)
- with columns that sum to 1 in each row, and no content            weak labels
- of numbers (n, d), or with numbered columns of numbers            features (votes, if small whole numbers with −1)
- called trusted, gold, valid, dev …, with a label                  trusted
- called test, holdout …, with a label                              test
- with an id and a label only                                       trusted if it names less than half of the items, else votes
- with anything else                                                items

A column is the id if its name says so or its values are distinct codes; a text if its values are sentences; an image if they end
as image files do; a label if it is called so. It is a source if it is called as one (lf_, rule, annotator, gpt …), or is one of
three or more beside a text or an image with class names as values and gaps. Class names alone make no source: a feature may be
Yes and No too. Such columns are features, and the preview asks; beside a text or an image they are left out, as they may tell
people the label. Where nothing is a text or an image, all other columns are features; else they are shown to people only.

What a crowd platform writes beside its answers (_golden, _unit_state, label:confidence, label_gold) is left out, too.
"""

import atexit
import difflib
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from labelchef.base.errors import InvalidInputError
from labelchef.base.intake import ColumnRole, FilePlan, FileRole, Finding, Plan, Progress, Severity, no_progress
from labelchef.believe.llm import looks_like_llm_labels
from labelchef.data.files import archives, formats, queries
from labelchef.data.files.formats import Table
from labelchef.data.files.queries import SqlQuery
from labelchef.data.intake.foreign import unfold
from labelchef.data.intake.profiles import (
    Column,
    Look,
    alike,
    can_be_votes,
    is_split,
    len_of,
    option,
    role_by_name,
    words_of,
)

_SMALL = 64 << 20
"""Files up to this size are read whole to find out their roles."""
_SOME = 20_000
"""Rows that are read of larger ones."""


@dataclass(frozen=True)
class Given:
    """What the user said of the files; empty where nothing was said."""

    id: str | None = None
    """The column that names items, in every file that has it."""
    text: tuple[str, ...] = ()
    image: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    """Columns that the model learns from as they are: numbers, categories, dates."""
    shown: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    """Columns of the items with labels that may be wrong: each is a source."""
    truth: str | None = None
    """The column of the items, or of trusted files, with labels that are right."""
    used: tuple[str, ...] = ()
    """Columns to use although they seem to tell the label."""
    vote_columns: Mapping[ColumnRole, str] = field(default_factory=dict)
    """Columns of long tables of votes: id, voter, vote, probability."""
    rows_are_ids: bool = False
    """Whether items are called by their row numbers, whatever columns there are."""
    fold_case: bool = False
    """Whether class names that differ in upper and lower case only are one."""
    split: str | None = None
    """The column of the items that says train, trusted (valid, dev) or test."""
    items: tuple[Path, ...] = ()
    votes: tuple[Path, ...] = ()
    trusted: tuple[Path, ...] = ()
    test: tuple[Path, ...] = ()
    weak: tuple[Path, ...] = ()
    features: tuple[Path, ...] = ()
    rules: tuple[Path, ...] = ()
    functions: tuple[Path, ...] = ()
    llm: tuple[Path, ...] = ()
    media: tuple[Path, ...] = ()
    classes: tuple[str, ...] | None = None
    by_position: bool = False
    roles: Mapping[str, FileRole] = field(default_factory=dict)
    """Corrections: path as the plan has it → role of the file."""
    column_roles: Mapping[str, Mapping[str, ColumnRole]] = field(default_factory=dict)
    """Corrections: path as the plan has it → column → its role."""
    unpack_into: Path | None = None
    """Where archives and rows of queries are put; None for a folder that is removed when the process ends."""


def detect(
    paths: Sequence[Path | str | SqlQuery], given: Given | None = None, progress: Progress = no_progress
) -> Plan:
    """Find out how the files are used; `join` makes rows of the result."""
    given = given or Given()
    into = _Folder(given.unpack_into)
    found = [*_listed(paths, None, into, progress)]
    for role, named in (
        (FileRole.ITEMS, given.items),
        (FileRole.TRUSTED, given.trusted),
        (FileRole.TEST, given.test),
        (FileRole.VOTES, given.votes),
        (FileRole.WEAK, given.weak),
        (FileRole.FEATURES, given.features),
    ):
        found += _listed(named, role, into, progress)
    looks: list[Look] = []
    others: list[FilePlan] = []
    seen: dict[str, int] = {}
    for path, said in found:
        told = given.roles.get(path, said)
        if path in seen:  # named twice: as a file and by an option, which says more
            if told is not None:
                looks = [Look(one.table, told) if one.path == path else one for one in looks]
            continue
        seen[path] = 1
        plain = _unread(path, told)
        if plain is not None:
            others.append(plain)
            continue
        looks.append(Look(_sample(path, progress), told))
    for role, named in (
        (FileRole.RULES, given.rules),
        (FileRole.FUNCTIONS, given.functions),
        (FileRole.LLM, given.llm),
        (FileRole.MEDIA, given.media),
    ):
        others = [one for one in others if one.path not in set(map(str, named))]
        for one in named:
            file, _ = formats.locate(one)
            if role is FileRole.MEDIA and archives.is_zip(file):
                file = archives.unpack(file, into(), progress)
            others.append(FilePlan(str(file), role, why="given"))
    if not looks:
        raise InvalidInputError(
            "no file with samples was given; expected at least one: labelchef init NAME data.csv --text COLUMN",
            code="files",
        )
    return _Detective(looks, others, given).plan()


class _Folder:
    """A folder for what is unpacked, made when it is needed."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def __call__(self) -> Path:
        if self._path is None:
            self._path = Path(tempfile.mkdtemp(prefix="labelchef-"))
            atexit.register(shutil.rmtree, self._path, ignore_errors=True)
        self._path.mkdir(parents=True, exist_ok=True)
        return self._path


def _listed(
    paths: Iterable[Path | str | SqlQuery], role: FileRole | None, into: _Folder, progress: Progress
) -> list[tuple[str, FileRole | None]]:
    """Every table below the paths; archives are unpacked, queries are asked, files of other tools become tables."""
    found: list[tuple[str, FileRole | None]] = []
    for path in paths:
        if isinstance(path, SqlQuery):
            found.append((str(queries.fetch(path, into(), progress)), role))
            continue
        file, part = formats.locate(path)
        below = str(path)
        if file.is_file() and archives.is_zip(file):
            below = str(archives.unpack(file, into(), progress)) + ("" if part is None else f"#{part}")
        inside = formats.parts(below)
        if not inside:
            raise InvalidInputError(
                f"{path} holds no image ({', '.join(formats.IMAGE_SUFFIXES)}) and no table ({', '.join(formats.SUFFIXES)})",
                code="file",
            )
        for one in inside:
            found += [(one, role)] if role is not None else _unfolded(one, into)
    return found


def _unfolded(path: str, into: _Folder) -> list[tuple[str, FileRole | None]]:
    """The tables of a file of another tool, else the file itself."""
    file, part = formats.locate(path)
    tables = unfold(file, into() / "unfolded") if part is None and file.is_file() and formats.is_table(file) else None
    if tables is None:
        return [(path, None)]
    roles = (
        (tables.items, FileRole.ITEMS),
        (tables.trusted, FileRole.TRUSTED),
        (tables.test, FileRole.TEST),
        (tables.votes, FileRole.VOTES),
    )
    return [(str(one), role) for one, role in roles if one is not None]


def _unread(path: str, told: FileRole | None) -> FilePlan | None:
    """The plan of a file that is no table."""
    file, _ = formats.locate(path)
    if told in (FileRole.RULES, FileRole.FUNCTIONS, FileRole.LLM, FileRole.MEDIA, FileRole.IGNORED):
        return FilePlan(path, told, why="given")
    if told in (None, FileRole.VOTES) and file.is_file() and looks_like_llm_labels(file):
        return FilePlan(path, FileRole.LLM, why="labels with probabilities of classes")
    if file.is_dir() or told is not None:
        return None
    if file.suffix.lower() == ".py":
        return FilePlan(path, FileRole.IGNORED, why="Python is only run when named: --functions")
    if file.suffix.lower() in (".yaml", ".yml", ".toml") or "rules" in words_of(file.stem):
        return FilePlan(path, FileRole.RULES, why="called so")
    return None


def _sample(path: str, progress: Progress) -> Table:
    file, _ = formats.locate(path)
    large = file.is_file() and file.stat().st_size > _SMALL
    return formats.read_table(path, rows=_SOME if large else None, progress=progress)


class _Detective:
    """Finds out roles, files before columns."""

    def __init__(self, looks: list[Look], others: list[FilePlan], given: Given) -> None:
        known = {name for look in looks for name in look.table.columns}
        self.looks, self.others, self.given = looks, others, _parted(given, known)
        self.findings: list[Finding] = []
        self.item_ids: frozenset[str] = frozenset()
        self.item_keys: dict[str, str | None] = {}
        self.classes = self._known_classes()
        self.long: dict[str, dict[str, ColumnRole] | None] = {}
        """Roles of the columns of files that can be long tables of votes."""

    def plan(self) -> Plan:
        self._check_named()
        self._file_roles()
        items = [look for look in self.looks if look.role is FileRole.ITEMS]
        content: dict[str, ColumnRole] = {}
        plans: dict[str, FilePlan] = {}
        self.item_keys = {look.path: self._id_column(look) for look in items}
        named = [look.columns[key].values for look in items if (key := self.item_keys[look.path]) in look.columns]
        self.item_ids = frozenset(value for values in named for value in values)
        for look in items:
            if look.table.media is not None:  # files name images without their folders, too
                self.item_ids |= {PurePosixPath(key).name for key in self.item_ids}
        for look in [*items, *(one for one in self.looks if one.role is not FileRole.ITEMS)]:
            assert look.role is not None, "every file has a role by now"
            roles = self._columns(look, content)
            if look.role is FileRole.ITEMS:
                content |= {name: role for name, role in roles.items() if name not in content}
            corrected = self.given.column_roles.get(look.path, {})
            roles |= {name: role for name, role in corrected.items() if name in roles}
            said = tuple(name for name in roles if name in self._said(look))
            plans[look.path] = FilePlan(look.path, look.role, roles, look.why, said)
        files = (*(plans[look.path] for look in self.looks), *self.others)
        self._tell_python()
        given = self.given
        return Plan(files, given.by_position, given.classes, tuple(self.findings), given.fold_case)

    def _said(self, look: Look) -> set[str]:
        """Columns of which the user has said how they are used."""
        given = self.given
        named = (
            *given.ignored, *given.shown, *given.columns, *given.image, *given.text, *given.labels, *given.used, given.truth,
            given.split, given.id,
        )  # fmt: skip
        return {*(name for name in named if name is not None), *given.column_roles.get(look.path, {})}

    def _note(self, code: str, message: str, examples: Iterable[str] = (), severity: Severity = Severity.NOTE) -> None:
        shown = tuple(examples)
        self.findings.append(Finding(code, severity, message, len(shown), shown[:5]))

    def _tell_python(self) -> None:
        unused = [one.path for one in self.others if one.role is FileRole.IGNORED and one.path.endswith(".py")]
        if unused:
            self._note(
                "python-file",
                f"{Path(unused[0]).name} is Python and was not run. If it has labelling functions: --functions {unused[0]}",
                unused,
            )

    def _check_named(self) -> None:
        """Refuse a column that no file has."""
        given = self.given
        known = {name for look in self.looks for name in look.table.columns}
        for asked, names in (
            ("--id", (given.id,)),
            ("--text", given.text),
            ("--image", given.image),
            ("--columns", given.columns),
            ("--labels", given.labels),
            ("--truth-column", (given.truth,)),
            ("--split", (given.split,)),
            ("--shown", given.shown),
            ("--ignore", given.ignored),
            ("--use", given.used),
            ("--vote-columns", tuple(given.vote_columns.values())),
        ):
            for name in names:
                if name is not None and name not in known:
                    close = _close(name, known)
                    hint = f" Did you mean {close!r}?" if close else ""
                    raise InvalidInputError(
                        f"{asked} {name}: no file has a column of this name; there are {sorted(known)[:15]}.{hint}",
                        code="column",
                    )

    def _known_classes(self) -> frozenset[str]:
        """Class names that are certain: those given, else the labels of files that are said or called to be trusted or test."""
        if self.given.classes:
            return frozenset(self.given.classes)
        found: set[str] = set()
        for look in self.looks:
            named = {FileRole.TRUSTED, FileRole.TEST} & {look.told, role_by_name(look)}
            if named and look.told in (None, FileRole.TRUSTED, FileRole.TEST):
                label = self._label_column(look)
                found |= look.columns[label].classes if label else set()
        if not found:
            for look in self.looks:
                for one in look.columns.values():
                    if one.few and ((one.gold_label and one.name not in look.books) or one.name == self.given.truth):
                        found |= one.classes
        return frozenset(found)

    # files

    def _file_roles(self) -> None:
        self._long_tables()
        naming = [
            look
            for look in self.looks
            if look.table.media is None
            and look.names_images(self.given.image)
            and self.long[look.path] is None
            and (
                look.told is not None
                or self._file_role(look)[0] not in (FileRole.VOTES, FileRole.WEAK, FileRole.FEATURES)
            )
            and (look.told is FileRole.ITEMS or role_by_name(look) not in (FileRole.TRUSTED, FileRole.TEST))
            and (look.told is not None or not self._labels_some_images(look))
        ]
        for look in self.looks:
            if look.role is None and look.table.media is not None and naming:
                look.role, look.why = FileRole.MEDIA, f"the images that {naming[0].title} names"
        for look in self.looks:
            if look.role is None:
                look.role, look.why = self._file_role(look)
        undecided = [look for look in self.looks if look.role is FileRole.IGNORED and look.told is None]
        items = [look for look in self.looks if look.role is FileRole.ITEMS]
        if not items:
            items = self._choose_items(undecided)
        for look in undecided:
            if look.role is FileRole.IGNORED:
                self._role_of_labels(look, items)
        self._named_images()

    def _in_folder(self, column: Column) -> bool:
        """Whether the images that a column names are in a folder of images, most of them: then it may stand for their ids."""
        there = [PurePosixPath(name).name for name in column.values]
        return any(
            sum(name in folder for name in there) > len(there) / 2
            for folder in (look.image_names for look in self.looks if look.table.media is not None)
        )

    def _labels_some_images(self, look: Look) -> bool:
        """Whether a file has a label for half of the images of a folder or fewer: then the folder holds the samples."""
        if self._file_role(look)[0] is not FileRole.IGNORED:
            return False
        named = {PurePosixPath(value).name for one in look.columns.values() if one.images for value in one.values}
        folders = [other.image_names for other in self.looks if other.table.media is not None]
        return any(2 * len(named & there) <= len(there) for there in folders if named & there)

    def _named_images(self) -> None:
        """A folder of images is no list of samples where a table of samples names most of them."""
        tables = [look for look in self.looks if look.table.media is None and look.role is FileRole.ITEMS]
        for folder in (one for one in self.looks if one.table.media is not None and one.told is None):
            there = {PurePosixPath(str(name)).name for name in folder.table.frame["image"]}
            for table in tables:
                named = [one.values for one in table.columns.values() if one.images]
                found = {PurePosixPath(str(name)).name for values in named for name in values} & there
                if len(found) > len(there) / 2:
                    folder.role, folder.why = FileRole.MEDIA, f"the images that {table.title} names"

    def _long_tables(self) -> None:
        """Find long tables of votes. A column that names the rows of another file, some several times, names the items."""
        asked = self.given.vote_columns
        for look in self.looks:
            if asked and set(asked.values()) <= set(look.columns):
                named = {name: role for role, name in asked.items()}
                self.long[look.path] = {n: named.get(n, ColumnRole.IGNORED) for n in look.table.columns}
                continue
            item = self.given.id if self.given.id in look.columns else None
            if item is None or not look.columns[item].all_distinct:
                item = item or look.repeated(self._ids_elsewhere(look))
                self.long[look.path] = look.long(item, self.classes) if look.told in (None, FileRole.VOTES) else None
            else:
                self.long[look.path] = None

    def _ids_elsewhere(self, look: Look) -> frozenset[str]:
        """Values that name the rows of other files: of columns in which each is once."""
        found: set[str] = set()
        for other in self.looks:
            if other is look or other.told not in (None, FileRole.ITEMS):
                continue
            for one in other.columns.values():
                if one.all_distinct and not one.text and not one.fractions and (one.called_id or not one.numeric):
                    found |= one.known
                    found |= {PurePosixPath(key).name for key in one.known} if one.images else set()
        return frozenset(found)

    def _file_role(self, look: Look) -> tuple[FileRole, str]:
        """IGNORED stands for 'an id and a label only', which is decided when the items are known."""
        called = role_by_name(look)
        content = [name for name, one in look.columns.items() if one.text or (one.images and not self._in_folder(one))]
        label = self._label_column(look)
        long = self.long[look.path]
        if long is not None:
            shown = {role: name for name, role in long.items()}
            return FileRole.VOTES, (
                f"long table of votes: {shown[ColumnRole.ID]}, {shown[ColumnRole.VOTER]}, {shown[ColumnRole.VOTE]}"
            )
        if look.table.vectors and not content:
            votes = look.vote_vectors()
            if set(votes) == set(look.table.vectors) and called is not FileRole.FEATURES:
                return FileRole.VOTES, "whole numbers with −1 for no vote"
            if not votes and not (label and called is None):
                return FileRole.FEATURES, "rows of numbers"
        if look.numbered() and not content and called is not FileRole.ITEMS and label is None:
            return FileRole.FEATURES, "numbered columns of numbers"
        if look.probabilities() and not content:
            return FileRole.WEAK, "columns that sum to 1 in each row"
        if called in (FileRole.TRUSTED, FileRole.TEST) and label is not None:
            return called, f"called {look.stem}, with the labels {label!r}"
        key = self._id_column(look)
        rest = [one for name, one in look.columns.items() if name != key]
        sources = self._sources(look, key)
        if key is not None and rest and not content and len(self._class_columns(look, key)) == len(rest):
            beside = any(one.text or one.images for other in self.looks for one in other.columns.values())
            if called is FileRole.VOTES or (len(rest) > 1 and (beside or len(sources) == len(rest))):
                return FileRole.VOTES, f"a column of votes for each of {len(rest)} sources"
            if len(rest) == 1:
                return FileRole.IGNORED, ""
        if called is FileRole.VOTES and not content and (like := self._class_columns(look, key)):
            return FileRole.VOTES, f"called {look.stem}, with {len(like)} columns of votes"
        if called is FileRole.FEATURES and all(one.numeric for one in rest):
            return FileRole.FEATURES, f"called {look.stem}, all numbers"
        if key is not None and label is not None and len(look.table.columns) == 2:
            return FileRole.IGNORED, ""
        if look.table.media is not None:
            return FileRole.ITEMS, "a folder of images"
        return FileRole.ITEMS, f"has content: {', '.join(content[:3])}" if content else "has columns to learn from"

    def _choose_items(self, undecided: list[Look]) -> list[Look]:
        """The items where no file looks like them: the one with the most content, else the rows of features."""
        told = {look.path for look in self.looks if look.told is not None}
        free = [look for look in self.looks if look.path not in told]
        with_text = [look for look in free if any(one.text or one.images for one in look.columns.values())]
        rows_of = [look for look in self.looks if look.role is FileRole.FEATURES]
        chosen = max(with_text, key=lambda one: (one.role is not FileRole.VOTES, len_of(one)), default=None)
        if chosen is None and not rows_of:
            chosen = max(undecided or free, key=len_of, default=None)
        if chosen is None:
            return rows_of
        chosen.role, chosen.why = FileRole.ITEMS, "the file with the samples' content"
        return [chosen]

    def _role_of_labels(self, look: Look, items: list[Look]) -> None:
        """A file with an id and one label for each: trusted, if it names less than half of the items and is not called votes."""
        share = len(look.table) / max(1, sum(len(one.table) for one in items))
        has_trusted = any(one.role is FileRole.TRUSTED for one in self.looks)
        if share < 0.5 and not has_trusted:
            look.role, look.why = FileRole.TRUSTED, f"a label for {len(look.table)} items, less than half"
            option = f"--votes {look.title}"
        else:
            look.role, look.why = FileRole.VOTES, f"one label for each of {len(look.table)} items"
            option = f"--trusted {look.title}"
        meant = "known to be right" if look.role is FileRole.TRUSTED else "possibly wrong"
        self._note(
            "label-file", f"{look.title}: its labels are taken as {meant} ({look.why}). If not: {option}", [look.path]
        )

    # columns

    def _id_column(self, look: Look) -> str | None:
        """The column that names the items of a file; None if there is none.

        Of several, the one whose values are ids of the items; while these are not known, the one that other files have too,
        then the one with the most distinct values.
        """
        if self.given.id is not None:
            return self.given.id if self.given.id in look.columns else None
        corrected = self.given.column_roles.get(look.path, {})
        told = next((name for name, role in corrected.items() if role is ColumnRole.ID and name in look.columns), None)
        if told is not None:
            return told
        if look.table.media is not None:
            return "id"
        if self.given.rows_are_ids and look.role is FileRole.ITEMS:
            return None
        elsewhere = {name for other in self.looks if other is not look for name in other.columns}
        free = [one for name, one in look.columns.items() if corrected.get(name) is None and not one.text]
        called = [one for one in free if one.called_id and not one.fractions and one.n_filled > 0]
        called = [one for one in called if one.name in elsewhere or one.distinct > 0.5 * one.n_filled]
        found = called or [one for one in free if one.codes and not one.images][:1]
        if look.role is not FileRole.ITEMS:  # whatever it is called, a column that names the items
            found += [
                one
                for one in free
                if one not in found and one.distinct > 0.5 * one.n_filled and self._known_ids(one) > 0.9
            ]
        found = found or [one for one in free if one.images and one.all_distinct][:1]
        if not found:
            return None
        if len(found) == 1:
            return found[0].name

        def rank(one: Column) -> tuple[float, bool, bool, int]:
            return -self._known_ids(one), one.name not in elsewhere, one.words != ["id"], -one.distinct

        return min(found, key=rank).name

    def _known_ids(self, column: Column) -> float:
        """Share of a column's values that are ids of items, in tenths; 0 while the items are not known."""
        if not self.item_ids:
            return 0.0
        return round(sum(value in self.item_ids for value in column.values) / max(1, column.n_filled), 1)

    def _label_column(self, look: Look) -> str | None:
        """The column with the label of a row; None if there is none."""
        if self.given.truth in look.columns:
            return self.given.truth
        key = self._id_column(look)
        few = [
            one for name, one in look.columns.items() if name != key and (one.few or (one.called_label and one.n < 50))
        ]
        few = [one for one in few if not one.images and not one.text]
        gold = next((one for one in few if one.gold_label), None)
        exact = next((one for one in few if one.words in (["label"], ["y"], ["class"], ["target"])), None)
        named = next((one for one in few if one.called_label), None)
        only = few[0] if len(few) == 1 and len(look.table.columns) <= 3 else None
        found = gold or exact or named or only
        if found is None and look.told in (FileRole.TRUSTED, FileRole.TEST) and few:
            found = few[-1]
        return None if found is None else found.name

    def _sources(self, look: Look, key: str | None) -> tuple[str, ...]:
        """Columns with votes of sources: called so, or three or more alike, with gaps, beside what people read."""
        free = {
            name: one
            for name, one in look.columns.items()
            if name != key
            and one.few
            and not one.text
            and not one.images
            and not one.called_gold
            and name not in look.books
        }
        if look.role is FileRole.VOTES:
            fitting = [name for name, one in free.items() if can_be_votes(one.classes, self.classes)]
            if not self.given.classes:  # a class without a trusted row: its sources are called as the others are
                stems = {free[name].stem for name in fitting} - {None}
                fitting = [n for n, one in free.items() if n in fitting or one.surely_source or one.stem in stems]
            return tuple(fitting or free)
        called = [one for one in free.values() if one.called_source and can_be_votes(one.classes, self.classes)]
        found = {one.name for one in called if self.classes or one.surely_source} | set(alike(called))
        found |= {
            one.name for one in free.values() if one.called_label and self.classes and one.classes <= self.classes
        }
        if any(one.text or one.images for other in self.looks for one in other.columns.values()):
            gaps = [one for one in free.values() if one.silent_somewhere and one.name not in found]
            found |= set(alike([one for one in gaps if not self.classes or one.classes <= self.classes], 3))
        return tuple(name for name in free if name in found)

    def _class_columns(self, look: Look, key: str | None) -> tuple[str, ...]:
        """Columns whose values are class names, so that they may be votes or not."""
        free = [
            one for name, one in look.columns.items() if name != key and one.few and not one.text and not one.images
        ]
        free = [one for one in free if not one.called_gold and one.name not in look.books and one.classes]
        if not self.classes:
            return tuple(alike(free))
        named = [one for one in free if one.classes <= self.classes and (one.worded or one.silent_somewhere)]
        return tuple(dict.fromkeys([*(one.name for one in named), *self._sources(look, key)]))

    def _columns(self, look: Look, content: Mapping[str, ColumnRole]) -> dict[str, ColumnRole]:
        if look.role is FileRole.MEDIA:
            return {}
        roles = dict.fromkeys(look.table.columns, ColumnRole.IGNORED)
        key = self.item_keys[look.path] if look.path in self.item_keys else self._id_column(look)
        if look.role is FileRole.VOTES:
            long = self.long[look.path]
            if long is not None and not self._wide_told(look):
                return long
        if key is not None:
            own = look.role is FileRole.ITEMS and look.columns[key].images and look.table.media is None
            brought = look.role in (FileRole.TRUSTED, FileRole.TEST) and content.get(key) is ColumnRole.IMAGE
            roles[key] = (
                ColumnRole.IMAGE if own or brought else ColumnRole.ID
            )  # the path of an image may be the id, too
        if look.role is FileRole.VOTES:
            counts = look.counts(self.classes)
            roles |= dict.fromkeys(counts, ColumnRole.CLASS)
            for name in () if counts else (*self._sources(look, key), *look.vote_vectors()):
                roles[name] = ColumnRole.SOURCE
            self._tell_no_votes(look, roles)
        elif look.role is FileRole.WEAK:
            for name in look.probabilities() or tuple(n for n, one in look.columns.items() if one.numeric and n != key):
                roles[name] = ColumnRole.CLASS
        elif look.role is FileRole.FEATURES:
            for name in look.table.vectors:
                roles[name] = ColumnRole.FEATURE
            for name, one in look.columns.items():
                if name != key and one.numeric and not one.id_like and not one.row_numbers:
                    roles[name] = ColumnRole.FEATURE
        elif look.role in (FileRole.TRUSTED, FileRole.TEST):
            label = self._label_column(look)
            if label is not None:
                roles[label] = ColumnRole.LABEL
            self._content(look, roles, content)
        elif look.role is FileRole.ITEMS:
            self._items(look, roles, content)
        return roles

    def _tell_no_votes(self, look: Look, roles: Mapping[str, ColumnRole]) -> None:
        """Tell which columns of a votes file hold a few names, none of them a class: a class may have been forgotten."""
        left = [
            one for name, one in look.columns.items() if roles[name] is ColumnRole.IGNORED and name not in look.books
        ]
        named = [one.name for one in left if one.few and one.worded and one.classes and not one.classes & self.classes]
        if named and self.classes:
            self._note(
                "no-votes-in-columns",
                f"{look.title}: {', '.join(map(repr, named[:8]))} hold none of the classes "
                f"({', '.join(sorted(self.classes)[:8])}) and are not used. If they are votes, name all classes: --classes A,B",
                named,
            )

    def _wide_told(self, look: Look) -> bool:
        return ColumnRole.SOURCE in self.given.column_roles.get(look.path, {}).values()

    def _content(self, look: Look, roles: dict[str, ColumnRole], content: Mapping[str, ColumnRole]) -> None:
        """Columns of a trusted or test file: as those of the items with the same name; of its own where there are none."""
        kept = (
            ColumnRole.TEXT,
            ColumnRole.IMAGE,
            ColumnRole.FEATURE,
            ColumnRole.SHOWN,
            ColumnRole.SOURCE,
            ColumnRole.CLASS,
        )
        for name in look.table.columns:
            if roles[name] is ColumnRole.IGNORED and content.get(name) in kept:
                roles[name] = content[name]

    def _items(self, look: Look, roles: dict[str, ColumnRole], before: Mapping[str, ColumnRole]) -> None:
        given = self.given
        for names, role in (
            (given.ignored, ColumnRole.IGNORED),
            (given.shown, ColumnRole.SHOWN),
            (given.columns, ColumnRole.FEATURE),
            (given.image, ColumnRole.IMAGE),
            (given.text, ColumnRole.TEXT),
            (given.labels, ColumnRole.SOURCE),
            ((given.truth,), ColumnRole.LABEL),
            ((given.split,), ColumnRole.SPLIT),
            (() if given.id in given.image else (given.id,), ColumnRole.ID),
        ):
            roles |= {
                n: role for n in names if n in roles and not (role is ColumnRole.ID and roles[n] is ColumnRole.IMAGE)
            }
        told = self._said(look) - set(given.used)
        free = {n: one for n, one in look.columns.items() if n not in told and roles[n] is ColumnRole.IGNORED}
        for name in [name for name in free if name in before]:
            roles[name] = before[name]
            del free[name]
        self._splits_and_labels(look, roles, free)
        chosen = bool(given.text or given.image or given.columns)
        readable = []
        for name, one in free.items():
            if roles[name] is not ColumnRole.IGNORED:
                continue
            if one.images and not chosen:
                roles[name] = ColumnRole.IMAGE
            elif one.text and not chosen:
                roles[name] = ColumnRole.TEXT
                readable.append(name)
        has_content = chosen or any(role in (ColumnRole.TEXT, ColumnRole.IMAGE) for role in roles.values())
        hidden = self._doubtful(look, roles, free, has_content)
        rest = [
            n
            for n, one in free.items()
            if roles[n] is ColumnRole.IGNORED and one.n_filled > 0 and not one.row_numbers and n not in hidden
        ]
        self._remaining(look, roles, rest, has_content)
        vote_vectors = look.vote_vectors()
        for name in look.table.vectors:
            if name not in told:
                roles[name] = ColumnRole.SOURCE if name in vote_vectors else ColumnRole.FEATURE
        rows = [name for name in readable if len(name.split()) >= 4]
        if rows:
            self._note(
                "first-line",
                f"{look.title}: the first line seems to be a row, not the names of the columns: {rows[0][:60]!r}. If it is one, "
                "write a line with the names above it, such as id,text",
                [name[:60] for name in rows],
                Severity.WARNING,
            )
        if len(readable) > 1:
            self._note(
                "several-texts",
                f"{look.title}: {', '.join(map(repr, readable[:5]))} are all read as text. To read only some: "
                f"{option('text', readable[:1])}",
                readable,
            )

    def _splits_and_labels(self, look: Look, roles: dict[str, ColumnRole], free: dict[str, Column]) -> None:
        split = next(
            (n for n, one in free.items() if one.words[-1:] in (["split"], ["fold"], ["subset"]) and is_split(one)),
            None,
        )
        if split is not None and self.given.split is None:
            roles[split] = ColumnRole.SPLIT
        key = next((name for name, role in roles.items() if role is ColumnRole.ID), None)
        weak = look.probabilities() if self.given.columns == () else ()
        if set(weak) <= set(free):
            roles |= dict.fromkeys(weak, ColumnRole.CLASS)
        counts = [] if weak else list(look.counts(self.classes))
        if counts and set(counts) <= set(free):
            roles |= dict.fromkeys(counts, ColumnRole.CLASS)
            for name in look.following(counts):
                free.pop(name, None)
            self._note(
                "counts",
                f"{look.title}: {', '.join(map(repr, counts[:5]))} are taken as numbers of votes for each class. If they are "
                f"not: {option('columns', counts)}",
                counts,
            )
        for name in self._sources(look, key):
            if name in free and roles[name] is ColumnRole.IGNORED:
                roles[name] = ColumnRole.SOURCE
        for name, one in free.items():
            if roles[name] is not ColumnRole.IGNORED or not one.few or one.text or one.images or name in look.books:
                continue
            if one.gold_label and self.given.truth is None:
                roles[name] = ColumnRole.LABEL
        labels = [n for n, one in free.items() if one.called_label and one.few and roles[n] is ColumnRole.IGNORED]
        judged = [
            n for n in look.judged if n in free and free[n].few and roles[n] is ColumnRole.IGNORED and n not in labels
        ]
        labels += [n for n in judged if not self.classes or free[n].classes & self.classes]
        labels = [n for n in labels if n not in look.books and can_be_votes(free[n].classes, self.classes)]
        if look.table.media is not None and "folder" in free and roles["folder"] is ColumnRole.IGNORED:
            of_classes = not self.classes or bool(
                self.classes & free["folder"].classes
            )  # else folders of some other kind
            labels += ["folder"] if of_classes else []
        if labels and not self.given.labels:
            self._role_of_label(look, roles, labels[0], free[labels[0]])

    def _doubtful(
        self, look: Look, roles: Mapping[str, ColumnRole], free: Mapping[str, Column], has_content: bool
    ) -> set[str]:
        """Columns that may tell the label and are left out; what may be votes and is not taken so is told."""
        key = next((name for name, role in roles.items() if role is ColumnRole.ID), None)
        left = {name for name in free if roles[name] is ColumnRole.IGNORED and name not in self.given.used}
        sure = [name for name in left if has_content and look.columns[name].words[-1:] in (["confidence"], ["conf"])]
        books = [name for name in look.columns if name in left and name in {*look.judged, *look.books, *sure}]
        if books:
            gold = [name for name in books if "gold" in look.columns[name].words][:1]
            right = f"; as the right labels: {option('truth-column', gold)}" if gold else ""
            self._note(
                "crowd-columns",
                f"{look.title}: {', '.join(map(repr, books[:8]))} seem to say how the labels were made: neither learned from nor "
                f"shown. To use one: {option('use', books[:1])}{right}",
                books,
            )
        named = [name for name in self._class_columns(look, key) if name in left and name not in books]
        if named:
            how = "left out, as they may tell people the label" if has_content else "taken as features"
            keep = f"; to show them: {option('use', named)}" if has_content else ""
            self._note(
                "votes-or-not",
                f"{look.title}: {', '.join(map(repr, named[:8]))} hold class names and are {how}. If they are labels that may be "
                f"wrong: {option('labels', named)}{keep}",
                named,
            )
        return {*books, *(named if has_content else ())}

    def _role_of_label(self, look: Look, roles: dict[str, ColumnRole], name: str, column: Column) -> None:
        """A column called label in the items: known to be right if most rows have none and nothing else is trusted."""
        trusted = any(one.role is FileRole.TRUSTED for one in self.looks) or self.given.truth is not None
        known = sum(value != "-1" for value in column.values)
        if (
            not trusted
            and ColumnRole.LABEL not in roles.values()
            and ColumnRole.SPLIT not in roles.values()
            and known < column.n / 2
        ):
            roles[name] = ColumnRole.LABEL
            wrong = option("labels", [name])
            message = f"{look.title}: the {known} labels in {name!r} are taken as right. If they may be wrong: {wrong}"
        else:
            roles[name] = ColumnRole.SOURCE
            message = (
                f"{look.title}: the labels in {name!r} are taken as a source that may be wrong. If they are right: "
                f"{option('truth-column', [name])}; to leave them out: {option('ignore', [name])}"
            )
        self._note("label-role", message, [name])

    def _remaining(self, look: Look, roles: dict[str, ColumnRole], rest: list[str], has_content: bool) -> None:
        """Columns that are nothing else: learned from where there is no text and no image, else shown; ids are never features."""
        id_like = [name for name in rest if look.columns[name].id_like]
        roles |= dict.fromkeys(id_like, ColumnRole.SHOWN)
        others = [name for name in rest if name not in id_like]
        roles |= dict.fromkeys(others, ColumnRole.SHOWN if has_content else ColumnRole.FEATURE)
        if has_content and others and not (self.given.text or self.given.image or self.given.columns):
            self.findings.append(shown_only(look.title, others))


def shown_only(title: str, names: Sequence[str]) -> Finding:
    """The finding that columns are shown to people and not learned from."""
    message = (
        f"{title}: {', '.join(map(repr, names[:5]))} are shown to people, the model does not learn from them. To change that: "
        f"{option('columns', names)}"
    )
    return Finding("columns-shown", Severity.NOTE, message, len(names), tuple(names[:5]))


def _parted(given: Given, known: set[str]) -> Given:
    """The same, with what is no column parted at its commas: `A,B` names two columns."""

    def parts(values: Sequence[str]) -> tuple[str, ...]:
        return tuple(one for name in values for one in ([name] if name in known else map(str.strip, name.split(","))))

    return replace(
        given, text=parts(given.text), image=parts(given.image), columns=parts(given.columns), shown=parts(given.shown),
        ignored=parts(given.ignored), labels=parts(given.labels), used=parts(given.used),
    )  # fmt: skip


def _close(name: str, known: Iterable[str]) -> str | None:
    by_case = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name.lower(), by_case, 1, 0.6)
    return by_case[found[0]] if found else None
