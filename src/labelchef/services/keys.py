"""The key of a workspace: `signing.key` in its home, made when it is first needed, readable by its owner only.

It signs the links of rounds and exported ledgers (`services.proof`). Keep a copy: without it no more can be signed as before.
"""

import base64
import contextlib
import os
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from labelchef.domain.errors import StoreError
from labelchef.ledger.proof import SigningKey, fingerprint, require_signing
from labelchef.services.shared import writing_to
from labelchef.services.workspace import KEY_FILE, Workspace

_OWNER_ONLY = 0o600


def signing_key(ws: Workspace) -> SigningKey:
    """The key of a workspace; it is made when it is first needed."""
    require_signing()
    path = ws.home / KEY_FILE
    if not path.exists():
        _make_key(path)
    try:
        raw = base64.b64decode(path.read_text().strip(), validate=True)
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be read ({error}); restore it from a copy", code="key") from None
    if len(raw) != 32:
        raise StoreError(f"{path} holds {len(raw)} bytes, a key has 32; restore it from a copy", code="key")
    return SigningKey(raw)


def _make_key(path: Path) -> None:
    """A new key, in place as a whole or not at all; if two processes make one at once, the first one stays."""
    new = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    with writing_to(path, "make room or check the rights"):
        try:
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY), "w") as stream:
                stream.write(base64.b64encode(os.urandom(32)).decode() + "\n")
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
            return signing_key(ws).sign(text)
        except StoreError:  # the link is stored without a signature; an export says what is wrong with the key
            return None

    return sign


def told_key(ws: Workspace) -> tuple[str, str]:
    """The public key of a workspace and its fingerprint."""
    public = signing_key(ws).public
    return public, fingerprint(public)
