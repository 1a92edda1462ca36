"""How much memory the content of one file may take, compared with what its header or directory says before it is read.

    needed    bytes of the content in memory, from shapes, row counts and sizes that stand in the file
    allowed   LABELCHEF_FILE_MEMORY (2G, 500M, bytes); else a quarter of this machine's memory, which is the least of what is
              built in, what its control group may use and what this process may use

A quarter, because joining and encoding make copies. Packed files are also refused where they unpack to more than 500 times
their size, as files made to exhaust memory do.
"""

import contextlib
import functools
import os
import re
from pathlib import Path

from labelchef.base.errors import InvalidInputError, TooLargeError

VARIABLE = "LABELCHEF_FILE_MEMORY"
MOST_RATIO = 500
"""Of unpacked to packed bytes, for what unpacks to more than `LARGE` bytes."""
LARGE = 100 << 20
_SHARE = 4
_UNKNOWN = 8 << 30
_CONTROL_GROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_GROUP_USE = (  # limit, what is used, and of that what caches would give back
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        "/sys/fs/cgroup/memory/memory.stat",
    ),
)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def file_memory() -> int:
    """Bytes that the content of one file may take."""
    said = os.environ.get(VARIABLE, "").strip()
    if not said:
        return machine_memory() // _SHARE
    found = _SIZE.fullmatch(said)
    if found is None or float(found[1]) == 0:
        raise InvalidInputError(
            f"{VARIABLE} is {said!r}; expected a number of bytes above 0, such as 500M or 4G", code="memory"
        )
    return int(float(found[1]) * 2 ** _UNITS[found[2].upper()])


@functools.cache
def machine_memory() -> int:
    """Bytes of memory that this process can count on."""
    known = []
    with contextlib.suppress(ValueError, OSError, AttributeError):  # Windows has no sysconf
        known.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for name in _CONTROL_GROUPS:
        with contextlib.suppress(ValueError, OSError):  # "max" is no number: there is no limit
            known.append(int(Path(name).read_text()))
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        soft = resource.getrlimit(resource.RLIMIT_AS)[0]
        known += [] if soft == resource.RLIM_INFINITY else [soft]
    return min((one for one in known if one > 0), default=_UNKNOWN)


def free_memory() -> int:
    """Bytes of memory that are free now, those of caches included; at most what this process can count on."""
    known = [machine_memory()]
    with contextlib.suppress(ValueError, OSError, IndexError):  # Linux
        lines = Path("/proc/meminfo").read_text().splitlines()
        known += [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    for most, used, cached in _GROUP_USE:
        with contextlib.suppress(ValueError, OSError):  # "max" is no number: there is no limit
            limit, taken = int(Path(most).read_text()), int(Path(used).read_text())
            held = dict(line.split() for line in Path(cached).read_text().splitlines())
            known.append(limit - taken + int(held.get("inactive_file", held.get("total_inactive_file", 0))))
    return max(0, min(known))


def check_memory(what: object, needed: int, holds: str) -> None:
    """Refuse content that needs more memory than one file may take; `holds` says what it is, such as '10⁹ rows'."""
    allowed = file_memory()
    if needed > allowed:
        raise TooLargeError(
            f"{what} holds {holds}, which needs {shown_bytes(needed)} of memory; a file may take {shown_bytes(allowed)} on this "
            f"machine. Leave out columns or rows that are not needed, or allow more: {VARIABLE}={needed / 2**30 + 1:.0f}G",
        )


def check_unpacked(what: object, packed: int, unpacked: int) -> None:
    """Refuse what unpacks to far more than its size, or to more than a file may take."""
    check_ratio(what, packed, unpacked)
    check_memory(what, unpacked, "packed content")


def check_ratio(what: object, packed: int, unpacked: int) -> None:
    """Refuse what unpacks to far more than its size."""
    if unpacked > LARGE and unpacked > MOST_RATIO * max(packed, 1):
        raise TooLargeError(
            f"{what} unpacks to {unpacked / max(packed, 1):.0f} times its size ({shown_bytes(unpacked)}), as damaged or hostile "
            f"files do; expected at most {MOST_RATIO} times. If it is right, save it without compression",
        )


def shown_bytes(size: int) -> str:
    """A size for people.

    >>> shown_bytes(3 << 20), shown_bytes(5 << 29)
    ('3 MiB', '2.5 GiB')
    """
    return f"{size / 2**30:.1f} GiB" if size >= 1 << 30 else f"{max(1, size >> 20)} MiB"
