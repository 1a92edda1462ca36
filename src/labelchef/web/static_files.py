"""The files of the page, read once. Their digest is in their address, so browsers may cache them without limit."""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


@dataclass(frozen=True)
class StaticFile:
    """A file of the page."""

    content: bytes
    gzipped: bytes
    media_type: str


@cache
def static_files() -> dict[str, StaticFile]:
    """Path below static/ → file."""
    found: dict[str, StaticFile] = {}
    _collect(files("labelchef.web") / "static", "", found)
    return found


@cache
def static_digest() -> str:
    """A digest of all of them."""
    digest = hashlib.sha256()
    for path, file in sorted(static_files().items()):
        digest.update(path.encode() + b"\0" + file.content)
    return digest.hexdigest()[:16]


def _collect(folder: Traversable, prefix: str, found: dict[str, StaticFile]) -> None:
    for entry in folder.iterdir():
        path = f"{prefix}{entry.name}"
        if entry.is_dir():
            _collect(entry, f"{path}/", found)
            continue
        kind = TYPES.get("." + entry.name.rpartition(".")[2])
        if kind is not None:
            content = entry.read_bytes()
            found[path] = StaticFile(content, gzip.compress(content, 6, mtime=0), kind)
