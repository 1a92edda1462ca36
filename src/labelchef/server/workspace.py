"""A workspace: a folder with a database and the campaigns' files, or a folder beside a PostgreSQL database."""

import importlib.util
import logging
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from labelchef.base.errors import MissingExtraError, StoreError
from labelchef.base.files import PRIVATE_FOLDER, make_private, remove_leftovers, writing_to
from labelchef.server.changes import Changes, Signal
from labelchef.server.leases import Leases
from labelchef.server.memory import Memory
from labelchef.server.running import Runs

if TYPE_CHECKING:
    from labelchef.server.store.database import Database
    from labelchef.server.store.rows import CampaignRow

DATABASE_FILE = "labelchef.db"
"""The database of a home, if no other is named."""
_PROBE_BYTES = 16384
_OLD_LOCK = "worker.lock"  # earlier versions left it there
KEY_FILE = "signing.key"
"""The key of a home that signs its ledgers."""
CAMPAIGNS = "campaigns"
"""The folder of a home that holds the folders of the campaigns."""
INTAKES = "intakes"
"""The folder of a home that holds files on their way to a campaign."""
UNFINISHED_CAMPAIGN = ".new-"
"""How the folder of a campaign begins until all of it is written."""
UPLOADING, EXPORTING = "labelchef-upload-", "labelchef-export-"
"""How folders of a home begin that hold files while they are received or sent."""
_log = logging.getLogger("labelchef")


class Workspace:
    """An open workspace. Many threads may use it; `close` it at the end, or use it as a context manager."""

    def __init__(self, home: Path, database: "Database") -> None:
        self.home = home
        self.database = database
        self.reading, self.writing = database.reading, database.writing
        self.signal = Signal()
        self.changes = Changes(database, self.signal)
        self.leases = Leases(database)
        self.purge_soon = threading.Event()
        """Set when a campaign was deleted without a grace period: the worker removes it at its next turn."""
        self.writable_until = 0.0
        """Until when `check_writable` need not look again."""
        self.runs = Runs()
        """What this process does in the background."""
        self.memory = Memory()
        """What this process keeps of the workspace; each module that keeps something has a class for it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End what runs in the background, and give back the database's connections."""
        self.runs.close()
        self.memory.clear()
        self.leases.close()
        self.database.close()


def open_workspace(home: Path, database: str | None = None) -> Workspace:
    """Open the workspace in `home`, made if it is not there; refuse a database of another version.

    >>> import tempfile
    >>> with open_workspace(Path(tempfile.mkdtemp())) as ws:
    ...     print(ws.database.is_sqlite)
    True
    """
    require_store()
    from labelchef.server.store.database import open_database
    from labelchef.server.store.schema import prepare, standing_of

    home = Path(home)
    try:
        home.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        (home / CAMPAIGNS).mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
    except OSError as error:
        why = f"{home} cannot be used as a workspace: {error.strerror or error}; name another --home"
        raise StoreError(why, code="home") from None
    if database is None:
        _refuse_new(home, (home / DATABASE_FILE).exists())
    opened = open_database(home / DATABASE_FILE if database is None else database)
    try:
        if database is None:
            _refuse_new(home, not standing_of(opened).empty)
        prepare(opened)
        opened.remember_file()
    except BaseException:
        opened.close()
        raise
    _close_to_others(home, opened)
    return Workspace(home.resolve(), opened)


def _refuse_new(home: Path, there: bool) -> None:
    """Refuse to begin with an empty database where there are campaigns: theirs is lost, or elsewhere."""
    if there or not any(home.joinpath(CAMPAIGNS).glob("[!.]*/")):
        return
    raise StoreError(
        f"{home / CAMPAIGNS} holds campaigns, but {home / DATABASE_FILE} is missing or empty. Restore it from a copy; if the "
        "campaigns are in another database, name it with --database; to begin anew, name another --home",
        code="database_empty",
    )


def _close_to_others(home: Path, database: "Database") -> None:
    """Make what labelchef wrote readable for its owner only, and say so where it was not."""
    own = [home / CAMPAIGNS, home / INTAKES, home / _OLD_LOCK, home / KEY_FILE]
    if database.path is not None:
        ends = ("", "-wal", "-shm")
        own += [database.path.with_name(f"{database.path.name}{end}") for end in ends]
    known = {path.name for path in own}
    if all(name in known or name.startswith((UPLOADING, EXPORTING, f"{DATABASE_FILE}.")) for name in os.listdir(home)):
        own.append(home)  # it holds nothing else, so it was made for this
    changed = make_private(*own)
    if changed:
        named = ", ".join(str(path) for path in changed)
        _log.warning("other users of this machine could read %s; from now on only its owner can", named)


def clear_leftovers(ws: Workspace) -> int:
    """Delete what processes that died have left unfinished; how many files and folders it was."""
    found = remove_leftovers(ws.home, UPLOADING, EXPORTING)
    found += remove_leftovers(ws.home / CAMPAIGNS, UNFINISHED_CAMPAIGN)
    for place in (CAMPAIGNS, INTAKES):
        if (ws.home / place).is_dir():
            found += sum(remove_leftovers(Path(one.path)) for one in os.scandir(ws.home / place) if one.is_dir())
    return found


def require_store() -> None:
    """Refuse to begin if an extra is missing, and name it."""
    if importlib.util.find_spec("sqlalchemy") is None:
        raise MissingExtraError("campaigns need sqlalchemy; pip install 'labelchef[serve]'", code="serve")


def check_writable(ws: Workspace) -> None:
    """Write to the home as a vote or an upload would; a full disk, a lost mount or wrong rights are told.

    At most once a second: whoever asks more often gets the answer before, if that was good.
    """
    now = time.monotonic()
    if now < ws.writable_until:
        return
    remedy = "votes and uploads are refused. Make room, or check the disk, the folder and its rights"
    with writing_to(ws.home, remedy, code="home"), tempfile.TemporaryFile(dir=ws.home) as probe:
        probe.write(bytes(_PROBE_BYTES))
        probe.flush()
        os.fsync(probe.fileno())
    ws.writable_until = now + 1.0


def folder_of(ws: Workspace, campaign: "CampaignRow") -> Path:
    """The folder of a campaign, whether this home holds it or not."""
    return ws.home / CAMPAIGNS / campaign.public_id


def require_folder(ws: Workspace, campaign: "CampaignRow") -> Path:
    """The folder of a campaign; refused if this home does not hold it."""
    folder = folder_of(ws, campaign)
    if not folder.is_dir():
        raise StoreError(
            f"the folder {folder} of campaign {campaign.slug!r} is missing: this home does not hold its files. "
            f"Use the --home in which {CAMPAIGNS}/{campaign.public_id} lies, or restore that folder from a copy",
            code="folder",
        )
    return folder
