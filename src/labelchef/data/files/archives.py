"""Zip files are unpacked into a folder, safely: nothing outside of it is written, and sizes are checked before and on the way."""

import shutil
import stat
import zipfile
from pathlib import Path, PurePosixPath

from labelchef.base.intake import Progress, no_progress
from labelchef.base.limits import check_ratio
from labelchef.data.files.formats import unreadable, unusable

MOST_BYTES = 16 << 30
MOST_FILES = 1_000_000


def is_zip(path: Path) -> bool:
    """Whether the ending says so.

    >>> is_zip(Path("a.ZIP"))
    True
    """
    return path.suffix.lower() == ".zip"


def unpack(path: Path, into: Path, progress: Progress = no_progress, most_bytes: int = MOST_BYTES) -> Path:
    """Unpack a zip file into a new folder below `into`, which is returned; a folder that holds everything is entered."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = _checked(path, archive.infolist(), most_bytes)
            folder = _fresh(into, path.stem)
            try:
                _extract(path, archive, entries, folder, progress)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError) as error:
        if isinstance(error, ValueError) and hasattr(error, "code"):
            raise
        raise unreadable(path, error) from None
    except Exception as error:  # zlib.error, lzma.LZMAError: damaged streams
        raise unreadable(path, error) from None
    inside = [one for one in sorted(folder.iterdir()) if one.name != "__MACOSX"]
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder


def _fresh(into: Path, stem: str) -> Path:
    for k in range(10_000):
        folder = into / (stem or "archive") if k == 0 else into / f"{stem}-{k}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise unusable(f"there are too many folders {stem} in {into}; remove some")


def _checked(path: Path, found: list[zipfile.ZipInfo], most_bytes: int) -> list[zipfile.ZipInfo]:
    entries = [one for one in found if not one.is_dir()]
    if not entries:
        raise unusable(f"{path} holds no file; expected an archive of tables or images")
    if len(entries) > MOST_FILES:
        raise unusable(f"{path} holds {len(entries)} files; expected at most {MOST_FILES}")
    total, packed = sum(one.file_size for one in entries), sum(one.compress_size for one in entries)
    if total > most_bytes:
        raise unusable(f"{path} unpacks to {total / 2**30:.2f} GiB; expected at most {most_bytes / 2**30:.2f} GiB")
    check_ratio(path, packed, total)
    names: set[str] = set()
    for entry in entries:
        name = PurePosixPath(entry.filename)
        outside = name.is_absolute() or ".." in name.parts or "\\" in entry.filename or ":" in name.parts[0]
        if outside or any(ord(sign) < 32 for sign in entry.filename):
            raise unusable(f"{path} holds {entry.filename!r}, a path outside of the archive; expected paths below it")
        if stat.S_ISLNK(entry.external_attr >> 16):
            raise unusable(f"{path} holds the link {entry.filename!r}; expected files. Pack what it points to")
        if entry.flag_bits & 0x1:
            raise unusable(f"{path} is encrypted; unpack it and give the files")
        if entry.filename in names:
            raise unusable(f"{path} holds {entry.filename!r} twice; expected distinct names")
        names.add(entry.filename)
    return entries


def _extract(
    path: Path, archive: zipfile.ZipFile, entries: list[zipfile.ZipInfo], folder: Path, progress: Progress
) -> None:
    total, done = sum(one.file_size for one in entries), 0
    for entry in entries:
        target = folder.joinpath(*PurePosixPath(entry.filename).parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(entry) as packed, target.open("xb") as unpacked:
            written = 0
            while piece := packed.read(1 << 20):
                written += len(piece)
                if written > entry.file_size:
                    raise unusable(f"{path}: {entry.filename!r} is larger than the archive says; it may be damaged")
                unpacked.write(piece)
        done += written
        progress(f"unpacking {path.name}", done, total)
