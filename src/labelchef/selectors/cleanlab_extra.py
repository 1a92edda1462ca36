"""The optional library cleanlab: whether it is installed, in a version whose licence fits.

cleanlab is licensed under the AGPL below 2.8 and under the Apache licence from 2.8 on; older ones are not imported.
"""

import contextlib
import importlib
import importlib.metadata
import io
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from labelchef.domain.errors import MissingExtraError

OLDEST = (2, 8)
_REMEDY = "pip install 'labelchef[cleanlab]'"
_quiet = threading.Lock()


def require_cleanlab(selector: str) -> None:
    """Refuse a missing or old cleanlab, without importing it."""
    try:
        version = importlib.metadata.version("cleanlab")
    except importlib.metadata.PackageNotFoundError:
        raise MissingExtraError(f"selector {selector!r} needs cleanlab; {_REMEDY}", code="cleanlab") from None
    if _release(version) < OLDEST:
        raise MissingExtraError(
            f"selector {selector!r} needs cleanlab 2.8 or later and found {version}, which is licensed under the AGPL; "
            f"{_REMEDY}",
            code="cleanlab",
        )


def cleanlab_module(name: str) -> Any:
    """A module of cleanlab, imported at the first selection because the import takes seconds."""
    return importlib.import_module(f"cleanlab.{name}")


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Suppress what the library warns about and prints; it has no option for that.

    Output of other threads is not suppressed.
    """
    with _quiet, warnings.catch_warnings(), contextlib.redirect_stdout(_Muted(sys.stdout)):
        warnings.simplefilter("ignore", UserWarning)
        yield


class _Muted(io.TextIOBase):
    """A stream that drops what its own thread writes, and passes on what other threads write."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._thread = stream, threading.get_ident()

    def write(self, text: str) -> int:
        """Write the text, or drop it."""
        return len(text) if threading.get_ident() == self._thread else int(self._stream.write(text))

    def flush(self) -> None:
        """Flush the underlying stream."""
        self._stream.flush()

    def isatty(self) -> bool:
        """Whether the underlying stream is a terminal."""
        return bool(self._stream.isatty())


def _release(version: str) -> tuple[int, ...]:
    """The first two numbers of a version.

    >>> _release("2.10.1") > OLDEST > _release("2.7.1rc1")
    True
    """
    digits = ("".join(c for c in part if c.isdigit()) for part in version.split(".")[:2])
    return tuple(int(part or 0) for part in digits)
