"""Options of the server: from the command line, else from LABELCHEF_… in the environment, else the defaults of a laptop."""

import ipaddress
import resource
from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from labelchef.base.campaigns import GRACE_DAYS
from labelchef.base.errors import ForbiddenError, InvalidInputError
from labelchef.server.health import LEAST_FREE
from labelchef.server.logs import LogForm


class ServeOptions(BaseSettings):
    """Everything about the server that is not about a campaign.

    >>> ServeOptions(host="::1").local, ServeOptions(host="0.0.0.0").local
    (True, False)
    """

    model_config = SettingsConfigDict(env_prefix="LABELCHEF_", extra="ignore", frozen=True)

    home: Path = Path("labelchef-home")
    database: str | None = None
    host: str = "127.0.0.1"
    port: int = Field(8000, ge=0, le=65535)
    team: bool = False
    """Whether people sign in with accounts; if not, one person opens a one-time link."""
    https: bool = False
    """Whether people reach the server by https (a proxy in front does it): cookies are then marked Secure."""
    hostnames: frozenset[str] = frozenset()
    """Host names the server answers to. On a laptop always localhost only, against DNS rebinding."""
    import_root: Path | None = None
    """Campaigns may be made from folders below this one. None: on a laptop any folder, for a team no folder."""
    parallel: int = Field(2, ge=1, le=64)
    """Campaigns whose models are trained at the same time; one more, that has a model, may take its next step meanwhile."""
    processes: int = Field(1, ge=1, le=64)
    """Web processes behind the port; more than one on PostgreSQL only. The worker has a process of its own then."""
    worker: bool = True
    """Whether campaigns are moved on by this server; if not, `labelchef worker` does it."""
    share_port: bool = False
    """Whether other processes of this user may listen on the port too; set by the process that starts several."""
    parent: int = 0
    """The process that started this one and tells the address; it ends with it. 0: none."""
    cookie_name: str | None = Field(None, pattern=r"^[A-Za-z0-9_-]{1,64}$")
    """Name of the session cookie, the same for all servers behind a proxy; None: by port, or one name with `https`."""
    grace_days: float = Field(GRACE_DAYS, ge=0, le=36500)
    """Days in which a deleted campaign can be restored."""
    log: LogForm = LogForm.WARNINGS
    """How much is logged, and how (`server.logs`)."""
    metrics: bool = False
    """Whether /metrics answers."""
    metrics_token: SecretStr | None = Field(None, exclude=True)
    """What must be sent to read metrics; None: only programs on this machine may. A file: LABELCHEF_METRICS_TOKEN_FILE."""
    least_free_mb: int = Field(LEAST_FREE // 2**20, ge=0)
    """MiB that must be free on the disk; with less, /readyz answers 503."""
    max_upload_mb: int = Field(4096, ge=1)
    max_connections: int = Field(1000, ge=10)
    """Connections at one time; with more, requests get a 503. Fewer where the process may open fewer files."""

    @property
    def local(self) -> bool:
        """Whether only this machine can reach the server."""
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def allowed_hosts(self) -> frozenset[str]:
        """Host names answered to; empty for any."""
        return self.hostnames if self.team else frozenset({"localhost", "127.0.0.1", "[::1]"})

    @property
    def connections(self) -> int:
        """Connections at one time: `max_connections`, but a fifth of the files that may be open is left for other use."""
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return (
            self.max_connections
            if files == resource.RLIM_INFINITY
            else min(self.max_connections, max(10, files * 4 // 5))
        )

    @property
    def cookie(self) -> str:
        """Name of the session cookie: browsers share cookies between ports, so the port is in it."""
        return self.cookie_name or ("__Host-labelchef" if self.https else f"labelchef-{self.port}")

    def folder_allowed(self, folder: Path) -> bool:
        """Whether a campaign may be made from this folder of the server."""
        if self.import_root is None:
            return not self.team
        return folder.resolve().is_relative_to(self.import_root.resolve())

    def folder_to_read(self, name: str) -> Path:
        """The folder of the server that a lead names; refused where campaigns may not be made from it."""
        if "\x00" in name:
            raise InvalidInputError("the folder's name holds a null character", code="file")
        try:
            folder = Path(name).expanduser()
            allowed, _ = self.folder_allowed(folder), folder.is_dir()
        except (RuntimeError, OSError) as error:  # ~ of nobody, links in a circle, names too long
            why = f"{name!r} is no folder of the server that can be read: {error}; give its full path"
            raise InvalidInputError(why, code="file") from None
        if not allowed:
            below = f"below {self.import_root}" if self.import_root else "set by LABELCHEF_IMPORT_ROOT"
            why = f"campaigns are made from folders {below} only; upload the files instead"
            raise ForbiddenError(why, code="folder")
        return folder


def check_binding(options: ServeOptions) -> None:
    """Refuse to serve other machines without accounts."""
    if not options.local and not options.team:
        raise InvalidInputError(
            f"--host {options.host} opens the server to other machines, but anyone there could label without signing in; "
            "make accounts (labelchef users add NAME --role lead) and add --team, or keep to 127.0.0.1",
            code="binding",
        )
