"""The cleanlab library as an extra: found, and of a version whose licence fits.

cleanlab is licensed under the AGPL below 2.8 and under the Apache licence from 2.8 on; older ones are not imported.
"""

import importlib
import importlib.metadata
from typing import Any

from labelchef.domain.errors import MissingExtraError

OLDEST = (2, 8)
_REMEDY = "pip install 'labelchef[cleanlab]'"


def require_cleanlab(selector: str) -> None:
    """Say early, and without importing it, what is missing."""
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
    """A module of cleanlab; its import takes seconds, so it is left to the first selection."""
    return importlib.import_module(f"cleanlab.{name}")


def _release(version: str) -> tuple[int, ...]:
    """The first two numbers of a version.

    >>> _release("2.10.1") > OLDEST > _release("2.7.1rc1")
    True
    """
    digits = ("".join(c for c in part if c.isdigit()) for part in version.split(".")[:2])
    return tuple(int(part or 0) for part in digits)
