"""A ledger as a file that proves itself: JSON lines in canonical form, chained by SHA-256, sealed by an Ed25519 signature.

    {"body": {…}, "hash": h, "kind": k, "line": n, "previous": hash of line n − 1, "" for the first}
    h = SHA-256 of the canonical line without "hash" (and "signature")

    header     format, campaign, classes, settings, rule by which votes become decisions, version of labelchef
    data       name, type, shape and SHA-256 of every array, in NumPy's .npy format
    items      up to 500 samples of a split: key, SHA-256 of what people saw, label given with the data; weak labels (base64, <f8)
    vote, decision, change, round     the bodies of `server.store.chain_table`; a round comes behind all rows that its link covers
    seal       number of lines before, time of the export, public key, signature of the seal's hash

The same facts give the same bytes, apart from the seal, which holds the time. A file without a signature (key null) shows that
it is whole and consistent, but anyone can make another one.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from labelchef.base.arrays import Float64s
from labelchef.base.canonical import canonical, digest
from labelchef.base.errors import MissingExtraError

FORMAT, VERSION = "labelchef ledger", 1
FORM = 2
"""Form of the bodies of votes. The first one had neither account nor importer; links of that time are over bodies without."""
_SINCE_SECOND = ("account", "imported_by")
RULE = "majority of the live votes on an attempt; unresolved if classes tie or 'ambiguous' has the most votes"
DERIVED = ("scores", "model", "map")
"""Arrays of a campaign that are computed from the others, and written again with time."""
ITEMS_A_LINE = 500
KEY_PREFIX = "ed25519:"
_LINE = {"body", "hash", "kind", "line", "previous"}


@dataclass(frozen=True)
class SigningKey:
    """A private key of Ed25519, 32 bytes."""

    raw: bytes

    @property
    def public(self) -> str:
        """The public key as text."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        known = Ed25519PrivateKey.from_private_bytes(self.raw).public_key().public_bytes_raw()
        return KEY_PREFIX + base64.b64encode(known).decode()

    def sign(self, text: str) -> str:
        """The signature of a text, base64."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return base64.b64encode(Ed25519PrivateKey.from_private_bytes(self.raw).sign(text.encode())).decode()


def require_signing() -> None:
    """Refuse to begin without the library that signs."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        why = "signatures need cryptography; pip install 'labelchef[sign]'"
        raise MissingExtraError(why, code="sign") from None


def fingerprint(public: str) -> str:
    """A public key in short: the first 32 digits of its SHA-256, in groups of four.

    >>> fingerprint("ed25519:" + base64.b64encode(bytes(32)).decode())
    '6668 7aad f862 bd77 6c8f c18b 8e9f 8e20'
    """
    text = hashlib.sha256(base64.b64decode(public.removeprefix(KEY_PREFIX))).hexdigest()[:32]
    return " ".join(text[k : k + 4] for k in range(0, 32, 4))


def signed_by(public: str, text: str, signature: str) -> bool:
    """Whether the owner of this public key has signed the text."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        known = Ed25519PublicKey.from_public_bytes(base64.b64decode(public.removeprefix(KEY_PREFIX), validate=True))
        known.verify(base64.b64decode(signature, validate=True), text.encode())
    except (InvalidSignature, ValueError):
        return False
    return True


def chained(records: Iterable[tuple[str, Any]]) -> Iterator[bytes]:
    """(kind, body) as lines of a chain, each with its line feed; `sealed` ends it."""
    previous = ""
    for number, (kind, body) in enumerate(records, start=1):
        line = {"body": body, "kind": kind, "line": number, "previous": previous}
        previous = digest(line)
        yield canonical({**line, "hash": previous}) + b"\n"


def sealed(lines: Iterable[bytes], at: float, key: SigningKey | None) -> Iterator[bytes]:
    """The lines, and behind them the seal."""
    last, count = b"", 0
    for last in lines:
        count += 1
        yield last
    previous = json.loads(last)["hash"] if last else ""
    body = {"lines": count, "at": at, "key": None if key is None else key.public}
    line = {"body": body, "kind": "seal", "line": count + 1, "previous": previous}
    hashed = digest(line)
    yield canonical({**line, "hash": hashed, "signature": None if key is None else key.sign(hashed)}) + b"\n"


def is_given(array: str) -> bool:
    """Whether an array came with the data: neither computed by labelchef, nor a later version of the votes.

    >>> is_given("votes_indices"), is_given("votes-2_indices"), is_given("model")
    (True, False, False)
    """
    return array not in DERIVED and "-" not in array


class GroundDigest:
    """What a campaign is about, as its first link covers it: SHA-256 over a line for the classes, one for the arrays given with
    the data (name, type, shape, SHA-256), and one for each item: split, position, key, label given, digest of what people saw.
    What labelchef computes itself (`DERIVED`) and how often an item was asked change with time, and are not covered."""

    def __init__(self, classes: Iterable[str], arrays: Iterable[dict[str, Any]]) -> None:
        given = sorted((one for one in arrays if is_given(str(one["name"]))), key=lambda one: str(one["name"]))
        self._digest = hashlib.sha256(canonical(list(classes)) + b"\n" + canonical(given) + b"\n")

    def add(self, split: str, position: int, key: str, label: int | None, content: str) -> None:
        """One more item; splits in the order of `SplitName`, items by position."""
        self._digest.update(canonical([split, position, key, label, content]) + b"\n")

    def hex(self) -> str:
        """As text."""
        return self._digest.hexdigest()


class RowDigest:
    """rows(kind) of the rows so far."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self.count = 0

    def add(self, body: dict[str, Any]) -> None:
        """One more row."""
        self._digest.update(canonical(body) + b"\n")
        self.count += 1

    def hex(self) -> str:
        """As text."""
        return self._digest.hexdigest()


def in_form(body: dict[str, Any], form: int) -> dict[str, Any]:
    """The body of a row as an earlier form has it."""
    return body if form >= FORM else {name: value for name, value in body.items() if name not in _SINCE_SECOND}


def link_hash(previous: str, rows: dict[str, RowDigest], body: dict[str, Any], ground: str | None = None) -> str:
    """The link over these rows and this round; the first one covers the ground too, if it was made so."""
    under = {} if ground is None else {"ground": ground}
    kinds = {kind: one.hex() for kind, one in rows.items()}
    return digest({"previous": previous, **kinds, "round": digest(body), **under})


def content_digest(content: dict[str, str]) -> str:
    """Of what people saw of a sample, by name; what is empty is left out."""
    return digest({name: text for name, text in content.items() if text})


def shown_content(text: str | None, image: str | None, fields: Mapping[str, object] | None) -> dict[str, str]:
    """What people see of an item, by name, as a data set has it."""
    return {"text": text or "", "image": image or "", **{k: plain_field(v) for k, v in (fields or {}).items()}}


def plain_field(value: object) -> str:
    """A field of an item as text; numbers in one form, since a table may write 3 as 3.0.

    >>> plain_field(3), plain_field("3.0"), plain_field("red"), plain_field(None)
    ('3', '3', 'red', '')
    """
    if value is None:
        return ""
    try:
        number = float(str(value))
    except ValueError:
        return str(value)
    return f"{number:.12g}" if np.isfinite(number) else str(value)


def packed(weak: Float64s) -> str:
    """Rows of weak labels as text."""
    return base64.b64encode(np.ascontiguousarray(weak, dtype="<f8").tobytes()).decode()


def unproven(linked: int, unlinked: int, *, ground: bool) -> str:
    """What links do not show, in words: there are so many closed rounds with one and without, and the first covers the ground
    or not; empty if all is covered."""
    if not linked:
        return (
            "not proven: nothing shows whether rows were changed before the export, since no round has a link (an earlier "
            "version closed them, or links were removed)"
        )
    said = []
    if unlinked:
        said.append(
            f"nothing shows whether rows of the first {unlinked} rounds were changed before round {unlinked} closed, since these "
            "have no link (an earlier version closed them, or links were removed)"
        )
    if not ground:
        said.append(
            "nothing shows whether class names, items or arrays were changed, since the first link was made by an earlier "
            "version, which did not cover them"
        )
    return f"not proven: {'; '.join(said)}" if said else ""


class AlteredError(Exception):
    """A ledger that is not what was written: the first line that shows it, and why."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line}: {why}")
        self.line, self.why = line, why


class OtherKeyError(AlteredError):
    """A ledger that is whole, but signed with another key than the one that was given."""


@dataclass(frozen=True)
class Line:
    """A line whose place in the chain was checked."""

    number: int
    kind: str
    body: Any


@dataclass(frozen=True)
class Seal:
    """The end of a file."""

    line: int
    at: float
    key: str | None
    signature: str | None
    hash: str


def is_ledger(data: bytes) -> bool:
    """Whether a file is, or was, such a ledger: its first or its last line says so."""
    lines = data.split(b"\n")
    for line, kind in ((lines[0], "header"), (lines[-2] if len(lines) > 1 else b"", "seal")):
        found = _parsed(line)
        if isinstance(found, dict) and found.get("kind") == kind and set(found) >= _LINE:
            return True
    return FORMAT.encode() in lines[0]


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def read_chain(data: bytes) -> tuple[list[Line], Seal]:
    """The lines of a file, if every one is where and what it was; raises `AlteredError` for the first that is not."""
    if not data.endswith(b"\n"):
        raise AlteredError(data.count(b"\n") + 1, "the file was cut off: its last line has no end")
    texts = data[:-1].split(b"\n")
    lines, previous = list[Line](), ""
    for number, text in enumerate(texts, start=1):
        found = _parsed(text)
        end = isinstance(found, dict) and found.get("kind") == "seal"
        if not isinstance(found, dict) or set(found) != (_LINE | {"signature"} if end else _LINE):
            raise AlteredError(number, "it is no line of a ledger")
        if found["line"] != number:
            raise AlteredError(number, f"it was line {found['line']!r}: lines were taken out, added or exchanged")
        if found["previous"] != previous:
            raise AlteredError(number, "it does not follow the line before it")
        if not _is_hashed(found, text):
            raise AlteredError(number, "its content is not what was hashed when it was written")
        previous = found["hash"]
        if end:
            if number != len(texts):
                raise AlteredError(number + 1, "there are lines behind the seal")
            return lines, _seal_of(found)
        lines.append(Line(number, found["kind"], found["body"]))
    raise AlteredError(len(texts), "the seal is missing: lines were cut off at the end")


def _is_hashed(found: dict[str, Any], text: bytes) -> bool:
    """Whether a line has its own hash, and is written as lines are."""
    try:
        bare = {name: value for name, value in found.items() if name not in ("hash", "signature")}
        return bool(found["hash"] == digest(bare) and canonical(found) == text)
    except (ValueError, RecursionError):  # NaN, or nested too deeply
        return False


def _seal_of(found: dict[str, Any]) -> Seal:
    body, number = found["body"], found["line"]
    kinds = {"lines": (int,), "at": (float, int), "key": (str, type(None))}
    if not isinstance(body, dict) or set(body) != set(kinds) or not all(isinstance(body[k], kinds[k]) for k in kinds):
        raise AlteredError(number, "the seal is none")
    if body["lines"] != number - 1:
        raise AlteredError(number, f"the seal is for {body['lines']} lines, and {number - 1} are there")
    signature = found["signature"] if isinstance(found["signature"], str) else None
    return Seal(number, float(body["at"]), body["key"], signature, found["hash"])


def check_seal(seal: Seal, key: str | None) -> str:
    """What the signature proves, in words; raises `AlteredError` where it is wrong."""
    if seal.key is None:
        if key is not None:
            raise AlteredError(seal.line, "the file is not signed, and a key was given")
        return (
            "the file is not signed: it is whole and consistent, but anyone could have written it. "
            "Files of a workspace are signed"
        )
    require_signing()
    if seal.signature is None or not signed_by(seal.key, seal.hash, seal.signature):
        raise AlteredError(seal.line, "the signature does not belong to these lines")
    if key is not None and key != seal.key:
        why = f"it is signed with another key, {fingerprint_or_text(seal.key)}, than the one given, {fingerprint(key)}"
        raise OtherKeyError(seal.line, why)
    if key is None:
        return (
            f"the signature fits the key inside of the file, {fingerprint_or_text(seal.key)}. That proves that nothing "
            "changed since the owner of this key wrote it, not who that is: compare the key with `labelchef campaign key` of the "
            "workspace, or give --key"
        )
    return f"the signature is that of the key that was given, {fingerprint_or_text(key)}"


def fingerprint_or_text(key: str) -> str:
    """The fingerprint of a key, or what was found in its place."""
    try:
        return fingerprint(key)
    except ValueError:
        return repr(key)[:60]
