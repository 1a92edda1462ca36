"""The folders of intakes: what was uploaded, and what was said about it.

    home/intakes/ID/intake.json     who, when, what the user said, the plan, the campaign once it is made
    home/intakes/ID/files/          what was uploaded; empty for a folder of the server, which is read where it is

Names of uploaded files are checked here: no part of one leads out of the folder. Nothing uploaded is ever executed.
"""

import contextlib
import json
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import IO, Any

from labelchef.base.errors import ConflictError, InvalidInputError, NotFoundError
from labelchef.base.files import PRIVATE_FILE, PRIVATE_FOLDER, locked_folder, writing_to
from labelchef.base.intake import ColumnRole, FileRole, Plan, Progress
from labelchef.data.files import archives
from labelchef.data.files.archives import is_zip
from labelchef.data.files.artefacts import write_json
from labelchef.data.files.formats import MOST_BYTES
from labelchef.server.workspace import INTAKES, Workspace

IMAGES = "images"
"""The folder below an intake's files for images that came without a folder."""
KEPT_SECONDS = 14 * 86400.0
"""After this time without a change, an intake is deleted."""
MOST_INTAKES = 50
"""Intakes of a workspace at one time."""
_turn = threading.Lock()
_FILES, _RECORD = "files", "intake.json"
_ID = re.compile(r"[0-9a-f]{16}")
_IMAGE_ENDINGS = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff"})
_CODE_ENDINGS = frozenset({".py", ".pyc", ".pyw", ".ipynb", ".pkl", ".pickle", ".joblib"})
_DEEPEST, _LONGEST, _LISTED = 12, 200, 5
_CHUNK = 1 << 20
NO_CODE = (
    "labelling functions are code, which the page never runs; use the server's command line: labelchef init NAME data.csv "
    "--functions FILE.py. Rules without code can be made on the page"
)


@dataclass(frozen=True)
class Record:
    """What is kept of an intake."""

    by: str
    created_at: float
    folder: str | None = None
    """The folder of the server that is read; None for uploaded files."""
    roles: Mapping[str, FileRole] = field(default_factory=dict)
    """Path → role, where the user said one."""
    columns: Mapping[str, Mapping[str, ColumnRole]] = field(default_factory=dict)
    """Path → column → role, where the user said one."""
    by_position: bool = False
    rows_are_ids: bool = False
    fold_case: bool = False
    classes: tuple[str, ...] | None = None
    rules: tuple[Mapping[str, object], ...] = ()
    """Rules that were made on the page, as `believe.rules.rule_of` reads them."""
    answers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Column of text → what was said of the rules that were proposed for it, as `Proposals.state` gives it."""
    plan: Plan | None = None
    """As it was read last; its paths are relative."""
    campaign: str | None = None
    problem: str | None = None
    """Why no campaign could be made of it, when that was tried last."""

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**vars(self), "plan": None if self.plan is None else self.plan.as_json()}

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> "Record":
        """From what `as_json` gave.

        >>> record = Record("maria", 0.0, roles={"a.csv": FileRole.VOTES}, classes=("ham", "spam"))
        >>> Record.of_json(json.loads(json.dumps(record.as_json()))) == record
        True
        """
        read = dict(values)
        read["roles"] = {path: FileRole(role) for path, role in values["roles"].items()}
        read["columns"] = {
            path: {name: ColumnRole(role) for name, role in roles.items()} for path, roles in values["columns"].items()
        }
        read["classes"] = None if values["classes"] is None else tuple(values["classes"])
        read["rules"] = tuple(values["rules"])
        read["plan"] = None if values["plan"] is None else Plan.of_json(values["plan"])
        return cls(**read)


@contextlib.contextmanager
def changing(ws: Workspace, intake: str) -> Iterator[None]:
    """Held while a record is read and written again; other processes wait too."""
    with _turn, locked_folder(folder_of(ws, intake)):
        yield


def stamp(ws: Workspace, intake: str) -> tuple[object, ...]:
    """What differs once other files were uploaded or other things were said of them, by this process or another."""
    record = read(ws, intake)
    said = json.dumps(replace(record, plan=None, campaign=None, problem=None, answers={}).as_json(), default=str)
    if record.folder is not None:
        return (said,)
    root = files_of(ws, intake, record)
    seen = [(str(one.relative_to(root)), one.stat().st_size) for one in sorted(root.rglob("*")) if one.is_file()]
    return (said, *seen)


def new_folder(ws: Workspace) -> str:
    """The id of a new, empty intake; old ones are deleted first."""
    forget_old(ws)
    if sum(1 for _ in ids(ws)) >= MOST_INTAKES:
        why = (
            f"{MOST_INTAKES} uploads wait to be made into campaigns; create or delete some of them first (New campaign)"
        )
        raise ConflictError(why, code="intakes")
    intake = secrets.token_hex(8)
    with writing_to(ws.home / INTAKES, "make room or check the rights of the workspace", code="folder"):
        (ws.home / INTAKES).mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        for folder in (ws.home / INTAKES / intake, ws.home / INTAKES / intake / _FILES):
            folder.mkdir(mode=PRIVATE_FOLDER)
    return intake


def folder_of(ws: Workspace, intake: str) -> Path:
    """The folder of an intake that is there."""
    folder = ws.home / INTAKES / intake
    if not _ID.fullmatch(intake) or not (folder / _RECORD).is_file():
        why = f"there is no upload {intake[:50]!r}; it was deleted, or made into a campaign. Upload the files again"
        raise NotFoundError(why, code="intake")
    return folder


def files_of(ws: Workspace, intake: str, record: Record) -> Path:
    """The folder that the files of an intake are in."""
    return ws.home / INTAKES / intake / _FILES if record.folder is None else Path(record.folder)


def read(ws: Workspace, intake: str) -> Record:
    """What is kept of an intake."""
    return record_in(folder_of(ws, intake) / _RECORD)


def record_in(path: Path) -> Record:
    """What a file of an intake says."""
    try:
        return Record.of_json(json.loads(path.read_text()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = f"{path} cannot be read: {error}. Delete the folder and upload the files again"
        raise NotFoundError(why, code="intake") from None


def write(ws: Workspace, intake: str, record: Record) -> None:
    """Keep what is known of an intake."""
    folder = ws.home / INTAKES / intake
    with writing_to(folder, "make room or check the rights of the workspace", code="folder"):
        write_json(folder / _RECORD, record.as_json())


def ids(ws: Workspace) -> Iterator[str]:
    """All intakes of a workspace."""
    if (ws.home / INTAKES).is_dir():
        for entry in os.scandir(ws.home / INTAKES):
            if _ID.fullmatch(entry.name) and (Path(entry.path) / _RECORD).is_file():
                yield entry.name


def forget(ws: Workspace, intake: str) -> None:
    """Delete an intake with its files."""
    shutil.rmtree(ws.home / INTAKES / intake, ignore_errors=True)


def forget_files(ws: Workspace, intake: str) -> None:
    """Delete what was uploaded; the record stays."""
    shutil.rmtree(ws.home / INTAKES / intake / _FILES, ignore_errors=True)


def forget_old(ws: Workspace) -> None:
    """Delete the intakes that nobody has touched for a long time, and what is left of an upload that broke off."""
    if not (ws.home / INTAKES).is_dir():
        return
    for entry in os.scandir(ws.home / INTAKES):
        record = Path(entry.path) / _RECORD
        try:
            touched = record.stat().st_mtime if record.exists() else entry.stat().st_mtime
        except FileNotFoundError:  # deleted meanwhile
            continue
        if _ID.fullmatch(entry.name) and time.time() - touched > KEPT_SECONDS:
            forget(ws, entry.name)


def names(ws: Workspace, intake: str, record: Record) -> tuple[str, ...]:
    """What an intake consists of, for a list: the server's folder, or the first names of what was uploaded."""
    if record.folder is not None:
        return (record.folder,)
    folder = files_of(ws, intake, record)
    return tuple(sorted(one.name for one in folder.iterdir()))[:_LISTED] if folder.is_dir() else ()


def keep(folder: Path, files: Iterable[tuple[str, IO[bytes]]], *, replace: bool = False) -> None:
    """Store uploaded files by their names; those without a folder that are images go into `IMAGES`.

    All names are checked before anything is stored: of two files of one name, one would be lost. A file that is there
    already is overwritten only with `replace`.
    """
    placed: dict[PurePosixPath, tuple[str, IO[bytes]]] = {}
    for name, stream in files:
        place = safe_path(name)
        if len(place.parts) == 1 and place.suffix.lower() in _IMAGE_ENDINGS:
            place = PurePosixPath(IMAGES) / place
        if place in placed:
            why = f"two files of this upload, {placed[place][0]!r} and {name!r}, have one name; rename one or leave it out"
            raise InvalidInputError(why, code="same_name")
        if not replace and (folder / place).is_file():
            why = f"there is a file {str(place)!r} already; rename the new one, or say that it replaces the old one"
            raise ConflictError(why, code="file_exists")
        placed[place] = name, stream
    for place, (name, stream) in placed.items():
        target = folder / place
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(target, "wb", opener=_private) as stored:
                shutil.copyfileobj(stream, stored, _CHUNK)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            why = f"{name!r} is the name of a file and of a folder; rename one of them"
            raise InvalidInputError(why, code="file") from None


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, PRIVATE_FILE)


def entered(folder: Path) -> Path:
    """Where the files are: a folder that holds one folder only, as an upload of a folder does, is entered.

    >>> import tempfile
    >>> (Path(made := tempfile.mkdtemp()) / "my data" / "images").mkdir(parents=True)
    >>> _ = (Path(made) / "my data" / "items.csv").write_text("id")
    >>> entered(Path(made)).name
    'my data'
    """
    while True:
        inside = [one for one in folder.iterdir() if not one.name.startswith((".", "__MACOSX"))]
        if len(inside) != 1 or not inside[0].is_dir():
            return folder
        folder = inside[0]


def rules_files(folder: Path) -> list[Path]:
    """Files with rules: they are no tables, so a look at the folder alone does not find them."""
    return sorted(one for one in folder.iterdir() if one.is_file() and one.suffix.lower() == ".toml")


def unpack(folder: Path, progress: Progress) -> None:
    """Unpack the zip files among what was uploaded, each into a folder of its name."""
    for archive in sorted(one for one in folder.iterdir() if one.is_file() and is_zip(one)):
        archives.unpack(archive, folder, progress, MOST_BYTES)
        archive.unlink()


def safe_path(name: str) -> PurePosixPath:
    """Where an uploaded file is stored below the folder of its intake; names that lead elsewhere are refused.

    >>> safe_path("photos/cat/1.png"), safe_path("C:\\\\data\\\\a.csv")
    (PurePosixPath('photos/cat/1.png'), PurePosixPath('C:/data/a.csv'))
    >>> safe_path("../a.csv")
    Traceback (most recent call last):
    labelchef.base.errors.InvalidInputError: '../a.csv' cannot be the name of an uploaded file; give it a plain name with its
    ending
    """
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
    wrong = not parts or len(parts) > _DEEPEST or ".." in parts or not name.isprintable()
    if wrong or any(len(part.encode("utf-8", "surrogatepass")) > _LONGEST for part in parts):
        why = f"{name[:_LONGEST]!r} cannot be the name of an uploaded file; give it a plain name with its ending"
        raise InvalidInputError(why, code="file")
    path = PurePosixPath(*parts)
    if path.suffix.lower() in _CODE_ENDINGS:
        raise InvalidInputError(f"{path.name!r} is not taken: {NO_CODE}", code="code")
    return path
