"""A backup of a whole workspace in one file, and its restore into an empty one, on the same kind of database or the other.

The file is a tar (`.tar`), compressed where its name ends in `.gz`. Its members, in this order:

    manifest.json            format, version of the program, schema, when it was made
    files/PATH               arrays that a round replaces: those that belong to the rows, copied first
    tables/NAME/NUMBER.jsonl rows of the database (`server.store.dump`), all of one moment
    files/PATH               all other files of campaigns, files that were uploaded, the signing key
    digests/NUMBER.json      after at most 500 members: SHA-256 of each of them
    end.json                 how many members and rows there are, and a digest over all digests: without it the file is cut off

People vote and rounds go on while a backup is made: the rows are read in one transaction, and files never change once they are
written. Memory is bounded by a chunk of rows. The file has a name of its own until it is whole. It holds what the workspace
holds, people's names, digests of their passwords and the signing key, so only its owner may read it.

A restore first reads the whole file and compares its digests. Then it writes to a folder inside the home, and to the database in
one transaction; only when all is there does it get its place. It begins with nothing and leaves nothing if it fails.
"""

import contextlib
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import tarfile
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any

import labelchef
from labelchef.base.errors import ConflictError, InvalidInputError, LabelchefError, StoreError
from labelchef.base.files import (
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    locked_folder,
    remove_leftovers,
    remove_unfinished,
    sync_folder,
    whole_file,
    writing_to,
)
from labelchef.server.ledger.links import check_links
from labelchef.server.workspace import CAMPAIGNS, DATABASE_FILE, INTAKES, KEY_FILE, Workspace, require_store

if TYPE_CHECKING:
    from labelchef.server.store.database import Database

FORMAT = 1
RESTORING = ".restore-"
"""How the folder begins in which a restore is made."""
_MANIFEST, _END = "manifest.json", "end.json"
_ROWS = re.compile(r"tables/([a-z_]+)/\d+\.jsonl")
_DIGESTS = re.compile(r"digests/\d+\.json")
_MEDIA = "media"
"""Folder of a campaign with the images of its items."""
_REPLACED = frozenset({"model", "map"})
"""Arrays that a later round or chart replaces."""
_GROUP = 500
_TRIES = 5
_PIECE = 2**20
_BROKEN = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, UnicodeError, ValueError, KeyError)
Tell = Callable[[int], object]
"""Called with the bytes that were done."""


@dataclass
class BackupReport:
    """What a backup holds."""

    campaigns: int
    schema: str
    version: str
    made_at: float
    files: int = 0
    rows: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    """Before compression."""


def backup(ws: Workspace, out: Path, tell: Tell | None = None) -> BackupReport:
    """Write a backup of a workspace, while it is in use."""
    remedy = "no backup was written. Make room, or name another file"
    with writing_to(out, remedy):
        remove_unfinished(out)
        with whole_file(out, private=True) as stream, _compressed(out, stream) as packed:
            return _Writer(ws, packed, tell or (lambda _: None)).write()


@contextlib.contextmanager
def _compressed(out: Path, stream: IO[bytes]) -> Iterator[IO[bytes]]:
    if not out.name.endswith((".gz", ".tgz")):
        yield stream
        return
    with gzip.GzipFile(fileobj=stream, filename="", mode="wb", compresslevel=1) as packed:
        yield packed  # type: ignore[misc]


class _MovedError(Exception):
    """A round has replaced a file that the rows still name: look again."""


@dataclass(frozen=True)
class _Array:
    path: str
    """Below the home."""
    sha256: str
    replaced: bool


class _Digesting(io.RawIOBase):
    """A file that is read once: its digest, and how much of it came."""

    def __init__(self, stream: IO[bytes], tell: Tell) -> None:
        self._stream, self._tell = stream, tell
        self.digest, self.size = hashlib.sha256(), 0

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        found = self._stream.read(size)
        self.digest.update(found)
        self.size += len(found)
        self._tell(len(found))
        return found


class _Writer:
    def __init__(self, ws: Workspace, stream: IO[bytes], tell: Tell) -> None:
        self._ws, self._stream, self._tell = ws, stream, tell
        self._tar: tarfile.TarFile | None = None
        self._group: dict[str, str] = {}
        self._groups = 0
        self._members = 0
        self._chain = hashlib.sha256()
        self._done: set[str] = set()
        """Arrays that were copied before the rows."""

    def write(self) -> BackupReport:
        from labelchef.server.store import dump
        from labelchef.server.store.schema import VERSION

        with tarfile.open(fileobj=self._stream, mode="w|", format=tarfile.PAX_FORMAT) as self._tar:
            with contextlib.ExitStack() as held:
                connection, arrays, folders = self._beginning(held)
                report = BackupReport(len(folders), VERSION, labelchef.__version__, time.time())
                manifest = {"format": FORMAT, "labelchef": report.version, "schema": report.schema}
                manifest |= {"made_at": report.made_at, "campaigns": report.campaigns}
                self._add_bytes(_MANIFEST, json.dumps(manifest).encode(), listed=False)
                for path, content in self._now.items():
                    self._add_bytes(f"files/{path}", content)
                    report.files += 1
                number: Counter[str] = Counter()
                for chunk in dump.dump(connection):
                    self._add_bytes(f"tables/{chunk.table}/{number[chunk.table]:06d}.jsonl", chunk.lines)
                    number[chunk.table] += 1
                    report.rows[chunk.table] += chunk.rows
            for folder in (*folders, INTAKES):
                report.files += self._add_folder(folder, arrays)
            if (self._ws.home / KEY_FILE).is_file():
                report.files += self._add_file(KEY_FILE, None)
            missing = [path for path in arrays if path not in self._done]
            if missing:
                raise StoreError(
                    f"{self._ws.home / missing[0]} is missing, so this would be no whole backup; restore it from an earlier one",
                    code="array_missing",
                )
            self._flush()
            end = {"members": self._members, "rows": dict(report.rows), "sha256": self._chain.hexdigest()}
            self._add_bytes(_END, json.dumps(end).encode(), listed=False)
        report.bytes = self._tar.offset
        return report

    def _beginning(self, held: contextlib.ExitStack) -> tuple[Any, dict[str, _Array], list[str]]:
        """A transaction, the arrays that its rows name, and the folders of campaigns; files that rounds replace are read."""
        for _ in range(_TRIES):
            with contextlib.ExitStack() as opened:
                connection = opened.enter_context(self._ws.reading())
                arrays, folders = _named_files(connection)
                try:
                    self._now = {one.path: self._content(one) for one in arrays.values() if one.replaced}
                except _MovedError:
                    continue
                self._done = set(self._now)
                held.push(opened.pop_all())
                return connection, arrays, folders
        raise StoreError("rounds replace files faster than they can be copied; try again", code="locked")

    def _content(self, array: _Array) -> bytes:
        """A small file that may be replaced at any time."""
        path = self._ws.home / array.path
        try:
            found = path.read_bytes()
        except FileNotFoundError:
            raise _MovedError from None
        if hashlib.sha256(found).hexdigest() != array.sha256:
            raise _MovedError
        return found

    def _add_folder(self, name: str, arrays: dict[str, _Array]) -> int:
        """Add the files below a folder of the home that are not there yet. Those being written are left out, and arrays that no
        row names: what the worker computes again, or a round that is later than the rows. Of media nothing is left out: their
        names are those that people gave them."""
        added, media = 0, self._ws.home / name / _MEDIA
        for folder, folders, names in os.walk(self._ws.home / name, onerror=_not_read):
            hidden = () if media in (Path(folder), *Path(folder).parents) else (".",)
            folders[:] = sorted(one for one in folders if not one.startswith(hidden))
            for path in (Path(folder, one) for one in sorted(names) if not one.startswith(hidden)):
                relative = path.relative_to(self._ws.home).as_posix()
                unnamed = (
                    relative not in arrays and path.suffix == ".npy" and str(path.parent) == f"{self._ws.home}/{name}"
                )
                if relative not in self._done and not unnamed and not path.is_symlink():
                    added += self._add_file(relative, arrays.get(relative))
        return added

    def _add_file(self, relative: str, array: _Array | None) -> int:
        try:
            stream = (self._ws.home / relative).open("rb")
        except FileNotFoundError:  # removed meanwhile; one that rows name is missed at the end
            return 0
        assert self._tar is not None
        with stream:
            facts = _entry(f"files/{relative}", os.fstat(stream.fileno()).st_size)
            read = _Digesting(stream, self._tell)
            self._tar.addfile(facts, read)
        found = read.digest.hexdigest()
        if array is not None and found != array.sha256:
            raise StoreError(
                f"{self._ws.home / relative} is not the file that was stored, so this would be no good backup; restore it "
                "from an earlier one",
                code="array_digest",
            )
        self._done.add(relative)
        self._listed(facts.name, found)
        return 1

    def _add_bytes(self, name: str, content: bytes, *, listed: bool = True) -> None:
        assert self._tar is not None
        self._tar.addfile(_entry(name, len(content)), io.BytesIO(content))
        self._tell(len(content))
        if listed:
            self._listed(name, hashlib.sha256(content).hexdigest())

    def _listed(self, name: str, digest: str) -> None:
        assert self._tar is not None
        self._tar.members.clear()  # type: ignore[attr-defined]  # which would grow with the file
        self._group[name] = digest
        self._members += 1
        if len(self._group) >= _GROUP:
            self._flush()

    def _flush(self) -> None:
        group, self._group = self._group, {}
        content = json.dumps(group).encode()
        self._chain.update(content)
        self._add_bytes(f"digests/{self._groups:06d}.json", content, listed=False)
        self._groups += 1


def _not_read(error: OSError) -> None:
    """A folder that cannot be listed: without its files it would be no whole backup."""
    if not isinstance(error, FileNotFoundError):  # removed meanwhile; arrays that rows name are missed at the end
        raise StoreError(
            f"{error.filename} cannot be read ({error.strerror}), so this would be no whole backup; check rights and disk",
            code="folder",
        ) from error


def _entry(name: str, size: int) -> tarfile.TarInfo:
    facts = tarfile.TarInfo(name)
    facts.size, facts.mode, facts.mtime = size, PRIVATE_FILE, int(time.time())
    return facts


def _named_files(connection: Any) -> tuple[dict[str, _Array], list[str]]:
    """The arrays that rows name, by path below the home, and the folders of the campaigns."""
    from labelchef.server.store import campaign_table

    arrays, folders = {}, []
    for row in (
        *campaign_table.all_campaigns(connection),
        *campaign_table.all_campaigns(connection, deleted=True),
    ):
        folder = f"{CAMPAIGNS}/{row.public_id}"
        folders.append(folder)
        for facts in campaign_table.arrays_of(connection, row.id).values():
            path = f"{folder}/{facts.path}"
            arrays[path] = _Array(path, facts.sha256, facts.name in _REPLACED)
    return arrays, folders


def check_backup(path: Path, tell: Tell | None = None) -> BackupReport:
    """Read a backup to its end and compare every part with its digest; nothing is written."""
    with _reading(path, tell) as reader:
        for name, _, stream in reader.members():
            while stream.read(_PIECE):
                pass
            reader.seen(name)
        return reader.report


def restore_backup(path: Path, home: Path, database: str | None = None, tell: Tell | None = None) -> BackupReport:
    """Make a workspace of a backup: in a home that is empty or not there yet and, with `database`, an empty database."""
    require_store()
    from labelchef.server.store.schema import VERSION

    with _reading(path, tell) as reader:
        if reader.report.schema != VERSION:
            raise InvalidInputError(
                f"{path} was made by labelchef {reader.report.version} (schema {reader.report.schema}); this is "
                f"{labelchef.__version__} (schema {VERSION}). Restore it with labelchef {reader.report.version}",
                code="backup_schema",
            )
        with writing_to(home, "nothing was restored. Make room or check the rights", code="home"):
            _require_empty(home)
        check_backup(path, tell)  # all of it, before a row is stored
        with writing_to(home, "nothing was restored. Make room or check the rights", code="home"):
            folder = Path(tempfile.mkdtemp(prefix=RESTORING, dir=home))
        try:
            with locked_folder(folder):
                _Restore(reader, home, folder, database).run()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return reader.report


def _require_empty(home: Path) -> None:
    home.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    remove_leftovers(home, RESTORING)
    there = [name for name in sorted(os.listdir(home)) if name != "lost+found"]
    if there:
        raise ConflictError(
            f"{home} is not empty: it holds {there[0]}. A backup is restored into an empty home only; name another --home, or "
            "move what is there away",
            code="not_empty",
        )


class _Restore:
    def __init__(self, reader: "_Reader", home: Path, folder: Path, database: str | None) -> None:
        self._reader, self._home, self._folder, self._url = reader, home, folder, database
        self._arrays: dict[str, str] = {}
        """Digests of the files that lie directly in folders of campaigns."""

    def run(self) -> None:
        from labelchef.server.store.database import open_database
        from labelchef.server.store.schema import prepare

        remedy = "nothing was restored. Make room or check the rights"
        opened = open_database(self._folder / DATABASE_FILE if self._url is None else self._url)
        try:
            prepare(opened)
            with writing_to(self._home, remedy, code="home"):
                self._fill(opened)
        finally:
            opened.close()
        if self._url is None:
            with writing_to(self._home, remedy, code="home"):
                self._put_in_place()
                (self._folder / DATABASE_FILE).rename(self._home / DATABASE_FILE)
                sync_folder(self._home)

    def _fill(self, database: "Database") -> None:
        from labelchef.server.store import dump

        with database.writing() as connection:
            if not dump.is_empty(connection):
                raise ConflictError(
                    "the database is not empty. A backup is restored into an empty one only; make a new database and name it "
                    "with --database",
                    code="not_empty",
                )
            for name, size, stream in self._reader.members():
                rows = _ROWS.fullmatch(name)
                if rows is not None:
                    chunk = dump.Chunk(rows[1], stream.read(), 0)
                    self._reader.seen(name)
                    dump.load(connection, chunk)
                else:
                    self._write(name, size, stream)
                    self._reader.seen(name)
            dump.finish(connection)
            self._compare(connection)
            if (
                self._url is not None
            ):  # before the rows are there for others: a kill in between leaves an empty database
                self._put_in_place()

    def _write(self, name: str, size: int, stream: IO[bytes]) -> None:
        relative = PurePosixPath(name).relative_to("files")
        target = self._folder / relative
        target.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        digest = hashlib.sha256()
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE), "wb") as out:
            while piece := stream.read(_PIECE):
                digest.update(piece)
                out.write(piece)
            out.flush()
            os.fsync(out.fileno())
            if out.tell() != size:
                raise self._reader.refused(f"{name} is cut off")
        if len(relative.parts) == 3:
            self._arrays[str(relative)] = digest.hexdigest()

    def _compare(self, connection: Any) -> None:
        """The rows name files that are there, and the links of rounds follow from the rows."""
        from labelchef.server.store import campaign_table

        for path, array in _named_files(connection)[0].items():
            if self._arrays.get(path) != array.sha256:
                raise self._reader.refused(f"{path} is missing, or not the file that the rows name")
        for row in campaign_table.all_campaigns(connection):
            links = check_links(connection, row.id)
            if links.broken is not None:
                raise self._reader.refused(
                    f"campaign number {row.id} was altered before it was backed up: {links.told}"
                )

    def _put_in_place(self) -> None:
        for name in (CAMPAIGNS, INTAKES, KEY_FILE):
            if (self._folder / name).exists():
                (self._folder / name).rename(self._home / name)
        (self._home / CAMPAIGNS).mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        sync_folder(self._home)


@contextlib.contextmanager
def _reading(path: Path, tell: Tell | None) -> Iterator["_Reader"]:
    """Read a backup; what is wrong with it is said in a sentence."""
    try:
        with path.open("rb") as stream:
            yield _Reader(path, stream, tell or (lambda _: None))
    except LabelchefError:
        raise
    except _BROKEN as error:
        raise _refused(path, f"it is damaged or cut off ({type(error).__name__})") from None
    except OSError as error:
        if error.filename in (None, str(path)) and error.errno is None:  # from the tar: an end that came too early
            raise _refused(path, "it is damaged or cut off") from None
        raise InvalidInputError(
            f"{error.filename or path} cannot be read or written: {error.strerror}; check the path and the disk",
            code="file",
        ) from None


def _refused(path: Path, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"{path} cannot be used as a backup: {why}; nothing was restored. Use another backup", code="backup"
    )


class _Reader:
    def __init__(self, path: Path, stream: IO[bytes], tell: Tell) -> None:
        self._path, self._tell = path, tell
        self._tar = tarfile.open(fileobj=stream, mode="r|*")  # noqa: SIM115, the stream is closed by who opened it
        first = self._tar.next()
        if first is None or first.name != _MANIFEST:
            raise self.refused("it does not begin with a manifest; expected a file that `labelchef backup make` wrote")
        told = json.loads(self._read(first))
        if told["format"] != FORMAT:
            raise self.refused(f"it is of format {told['format']!r}, this version reads {FORMAT}; install a newer one")
        self.report = BackupReport(
            int(told["campaigns"]), str(told["schema"]), str(told["labelchef"]), float(told["made_at"])
        )
        self._group: dict[str, str] = {}
        self._current: _Digesting | None = None
        self._members = 0
        self._chain = hashlib.sha256()

    def refused(self, why: str) -> InvalidInputError:
        """An error about this file."""
        return _refused(self._path, why)

    def members(self) -> Iterator[tuple[str, int, IO[bytes]]]:
        """Name, size and content of every member with rows or a file; each is read to its end before the next."""
        ended = False
        while (entry := self._tar.next()) is not None:
            self._tar.members.clear()  # type: ignore[attr-defined]  # which would grow with the file
            if ended:
                raise self.refused("something follows its end")
            if entry.name == _END:
                self._check_end(json.loads(self._read(entry)))
                ended = True
            elif _DIGESTS.fullmatch(entry.name):
                self._compare(self._read(entry))
            elif _is_wanted(entry):
                stream = self._tar.extractfile(entry)
                assert stream is not None, "it is a file"
                self._current = _Digesting(stream, self._tell)
                yield entry.name, entry.size, self._current  # type: ignore[misc]
            else:
                raise self.refused(f"it holds {entry.name!r}, which no backup does")
        if not ended:
            raise self.refused("its end is missing: it was cut off")

    def seen(self, name: str) -> None:
        """The member was read to its end."""
        assert self._current is not None
        self._group[name] = self._current.digest.hexdigest()
        self._members += 1
        if not _ROWS.fullmatch(name):
            self.report.files += 1
        self.report.bytes += self._current.size
        if len(self._group) > _GROUP:
            raise self.refused("digests are missing")

    def _compare(self, content: bytes) -> None:
        told, found = json.loads(content), self._group
        for name in {*told, *found}:
            if told.get(name) != found.get(name):
                raise self.refused(f"{name} was altered")
        self._chain.update(content)
        self._group = {}

    def _check_end(self, told: Any) -> None:
        if self._group or told["members"] != self._members or told["sha256"] != self._chain.hexdigest():
            raise self.refused("its end does not belong to what comes before it")
        self.report.rows = Counter(told["rows"])

    def _read(self, entry: tarfile.TarInfo) -> bytes:
        stream = self._tar.extractfile(entry)
        if stream is None:
            raise self.refused(f"{entry.name!r} is no file")
        return stream.read()


def _is_wanted(entry: tarfile.TarInfo) -> bool:
    """Whether a member is rows of a table, or a file whose name leads nowhere else."""
    from labelchef.server.store import dump

    rows = _ROWS.fullmatch(entry.name)
    if rows is not None:
        return entry.isreg() and rows[1] in {table.name for table in dump.tables()}
    parts = PurePosixPath(entry.name).parts
    below_media = parts[1:2] == (CAMPAIGNS,) and parts[3:4] == (_MEDIA,)  # people have named what is there
    ours = parts[:3] if below_media else parts
    safe = entry.isreg() and ".." not in parts and "\x00" not in entry.name and not any(p.startswith(".") for p in ours)
    return (
        safe
        and len(parts) > 1
        and parts[0] == "files"
        and (parts[1] in (CAMPAIGNS, INTAKES) or parts[1:] == (KEY_FILE,))
    )
