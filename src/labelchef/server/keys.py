"""The key of a workspace: `signing.key` in its home, made when it is first needed, readable by its owner only.

It signs the links of rounds and exported ledgers (`services.export.proof`). Keep a copy: without it no more can be signed as
before. A key that is lost, or is not the one that signed the first link, is refused, not replaced; `new_key` makes another one
knowingly, which the word `new` behind the key in the file says. The worker goes on meanwhile, and makes links without a
signature.
"""

import base64
import contextlib
import os
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from labelchef.base.errors import StoreError
from labelchef.base.files import writing_to
from labelchef.loop.ledger.proof import SigningKey, fingerprint, require_signing, signed_by
from labelchef.server.store import round_table
from labelchef.server.workspace import KEY_FILE, Workspace

_OWNER_ONLY = 0o600
_REMEDY = "restore it from a copy; if there is none, `labelchef campaign key --new` makes another key, and later ledgers say so"


def signing_key(ws: Workspace) -> SigningKey:
    """The key of a workspace; it is made when it is first needed. One that was lost or exchanged is refused."""
    require_signing()
    path, first = ws.home / KEY_FILE, _first_signed(ws)
    if not path.exists() and first is not None:
        raise StoreError(f"{path} is missing, and rounds were signed with it; {_REMEDY}", code="key")
    key, new = _read_key(path)
    if first is not None and not new and not signed_by(key.public, *first):
        raise StoreError(f"{path} holds another key than the one that signed the first rounds; {_REMEDY}", code="key")
    return key


def new_key(ws: Workspace) -> SigningKey:
    """Another key, in place of one that is lost; one that is there is kept beside it."""
    require_signing()
    path = ws.home / KEY_FILE
    if path.exists():
        with writing_to(path, "check the rights"):
            path.replace(path.with_name(f"{path.name}.before-{int(time.time())}"))
    _make_key(path, " new")
    return _read_key(path)[0]


def _first_signed(ws: Workspace) -> tuple[str, str] | None:
    """Digest and signature of the first link in the workspace that has one."""
    with ws.reading() as connection:
        for link in round_table.links_of_all(connection):
            if link["signature"] is not None:
                return link["sha256"], link["signature"]
    return None


def _read_key(path: Path) -> tuple[SigningKey, bool]:
    """The key, made if there is none, and whether it is in place of another one."""
    if not path.exists():
        _make_key(path)
    try:
        text, _, word = path.read_text().strip().partition(" ")
        raw = base64.b64decode(text, validate=True)
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be read ({error}); restore it from a copy", code="key") from None
    if len(raw) != 32:
        raise StoreError(f"{path} holds {len(raw)} bytes, a key has 32; restore it from a copy", code="key")
    return SigningKey(raw), word == "new"


def _make_key(path: Path, word: str = "") -> None:
    """A new key, in place as a whole or not at all; if two processes make one at once, the first one stays."""
    new = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    with writing_to(path, "make room or check the rights"):
        try:
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY), "w") as stream:
                stream.write(base64.b64encode(os.urandom(32)).decode() + word + "\n")
                stream.flush()
                os.fsync(stream.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(new, path)
        finally:
            new.unlink(missing_ok=True)


def link_signer(ws: Workspace) -> Callable[[str], str | None] | None:
    """Signs the links of rounds; None where signatures are not installed. A key that cannot be read stops no campaign."""
    if find_spec("cryptography") is None:
        return None

    def sign(text: str) -> str | None:
        try:
            path = ws.home / KEY_FILE  # one that is there is used: no more reading while a round closes
            return (_read_key(path)[0] if path.exists() else signing_key(ws)).sign(text)
        except StoreError:  # the link is stored without a signature; an export says what is wrong with the key
            return None

    return sign


def told_key(ws: Workspace) -> tuple[str, str]:
    """The public key of a workspace and its fingerprint."""
    public = signing_key(ws).public
    return public, fingerprint(public)
