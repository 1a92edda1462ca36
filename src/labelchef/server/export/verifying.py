"""Check a ledger file without the workspace that wrote it and without a database: chain, signature, links."""

import base64
import binascii
import contextlib
from dataclasses import dataclass
from pathlib import Path

from labelchef.base.campaigns import SplitName
from labelchef.base.errors import InvalidInputError
from labelchef.data.dataset import COPY, FIELD, OWN, VOTE, LabelOrigin
from labelchef.data.files.formats import read_table
from labelchef.loop.ledger.contents import Contents
from labelchef.loop.ledger.proof import (
    KEY_PREFIX,
    AlteredError,
    OtherKeyError,
    Seal,
    check_seal,
    content_digest,
    fingerprint_or_text,
    is_ledger,
    plain_field,
    read_chain,
    unproven,
)
from labelchef.server.shared import moment

_SPLITS = {"train": SplitName.TRAIN, "trusted": SplitName.VALIDATION, "test": SplitName.TEST}
"""What a data set calls the splits."""


@dataclass(frozen=True)
class Verdict:
    """What a verification came to, in words."""

    intact: bool
    line: int | None
    """The first line that shows a change; None where nothing does, and for a data set."""
    why: str
    """Why it was altered; empty if it was not."""
    checked: tuple[str, ...]
    """What was checked and holds, a sentence each."""
    notes: tuple[str, ...]
    """What could not be checked, a sentence each."""
    unproven: str = ""
    """"not proven: …": what the links do not show, in words; empty where they show that nothing was altered."""
    other_key: bool = False
    """Whether it is whole, but not signed with the key that was given."""


def verify_ledger(path: Path, key: str | None = None, data: Path | None = None, since: Path | None = None) -> Verdict:
    """Check a ledger that `write_ledger` wrote, and a data set that was exported from the same campaign.

    `key` is the public key that must have signed it, as `labelchef campaign key` prints it, or a file that holds it. `since` is
    an earlier ledger of the campaign, of which nothing may be missing.
    """
    wanted = None if key is None else _public_key(key)
    content = _read(path)
    before, key_before = (None, None) if since is None else _earlier(since)
    checked, notes = list[str](), list[str]()
    try:
        lines, seal = read_chain(content)
        when = _when(seal)
        checked.append(f"{len(lines)} lines and their seal are where and what they were when written, {when}")
        (notes if seal.key is None or wanted is None else checked).append(check_seal(seal, wanted))
        state = Contents(key=seal.key)
        for line in lines:
            state.add(line)
        _tell(state, checked, notes)
        if before is not None and since is not None:
            checked.append(_check_since(state, before, since))
            checked.append(_check_key_since(seal, key_before, since, wanted))
        if data is not None:
            checked.append(_check_data(state, data))
    except AlteredError as error:
        other = isinstance(error, OtherKeyError)
        return Verdict(False, error.line or None, error.why, tuple(checked), tuple(notes), other_key=other)
    return Verdict(True, None, "", tuple(checked), tuple(notes), _unproven(state))


def _read(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidInputError(
            f"{path} cannot be read: {error.strerror or error}; check the path", code="file"
        ) from None
    if not is_ledger(content):
        why = f"{path} is no ledger; expected a file that `labelchef export CAMPAIGN --what ledger` wrote"
        raise InvalidInputError(why, code="ledger")
    return content


def _earlier(path: Path) -> tuple[Contents, str | None]:
    """What an earlier ledger leads to, and the key that signed it; it must be whole itself."""
    state = Contents()
    try:
        lines, seal = read_chain(_read(path))
        check_seal(seal, None)
        for line in lines:
            state.add(line)
    except AlteredError as error:
        why = (
            f"--since: {path} was altered itself, {error}; expected an earlier ledger of the campaign as it was written"
        )
        raise InvalidInputError(why, code="since") from None
    if not state.links:
        raise InvalidInputError(f"--since: {path} has no links, so nothing can be compared with it", code="since")
    return state, seal.key


def _check_since(state: Contents, before: Contents, path: Path) -> str:
    """Compare with an earlier ledger of the campaign; what was compared, in words."""
    for number, link in enumerate(before.links):
        if state.links[number : number + 1] != [link]:
            why = f"{path.name} has {len(before.links)} links, and from number {number + 1} they are missing here or others"
            raise AlteredError(0, f"{why}: rounds were taken back or written anew since")
    told = f"{len(before.links)} links of {path.name} are the first ones here: no round was taken back since"
    if state.pseudonyms != before.pseudonyms:
        return f"{told}. Rows behind the last link cannot be compared: only one of the files has pseudonyms"
    if missing := len(before.bodies - state.bodies - state.first_forms):
        raise AlteredError(0, f"{missing} votes, decisions or changes of {path.name} are missing here, or were changed")
    return f"{told}; all its votes, decisions and changes are here"


def _check_key_since(seal: Seal, before: str | None, path: Path, wanted: str | None) -> str:
    """Compare the signing key with that of an earlier ledger; what was found, in words."""
    if seal.key == before:
        return f"it is signed with the same key as {path.name}" if before else f"{path.name} is not signed either"
    if before is None or seal.key is None:
        if seal.key is None:
            raise AlteredError(seal.line, f"it is not signed, and {path.name} is")
        return f"{path.name} is not signed, so the keys cannot be compared"
    told = (
        f"it is signed with the key {fingerprint_or_text(seal.key)}, and {path.name} with {fingerprint_or_text(before)}"
    )
    if wanted is None:
        why = f"{told}. If `labelchef campaign key --new` replaced the key, say so with --key and the new one"
        raise OtherKeyError(seal.line, why)
    return f"{told}; the new key is the one that was given"


def _when(seal: Seal) -> str:
    try:
        return f"{moment(seal.at):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError, OSError):
        raise AlteredError(seal.line, f"the time of the seal is {seal.at!r}") from None


def _tell(state: Contents, checked: list[str], notes: list[str]) -> None:
    n, linked = state.counts, len(state.links)
    checked.append(f"{n['vote']} votes, {n['decision']} decisions and {n['round']} rounds are in it")
    if linked and not state.pseudonyms:
        signed = f"{n['signed links']} of them are signed"
        checked.append(f"{linked} links: no row was changed in the database after its round closed; {signed}")
    if state.ground:
        checked.append("class names, items and arrays are those that were there when the first round closed")
    if linked and state.pseudonyms:
        notes.append(
            "names are pseudonyms, so the links to the database cannot be computed again; whoever exported the file could"
        )
    if unlinked := n["round"] - linked:
        notes.append(
            f"{unlinked} of the rounds have no link: still open, not from a database, or closed by an earlier version"
        )


def _unproven(state: Contents) -> str:
    """What the links of a file do not show."""
    linked = len(state.links)
    if not linked and state.of_folder:
        return (
            "not proven: that nothing was changed before the file was written, since a folder has neither links nor key"
        )
    if linked and state.pseudonyms:
        return "not proven: that nothing was changed in the database before the export, since pseudonyms hide the links"
    if foreign := state.counts["foreign links"]:
        return (
            f"not proven: {foreign} of {linked} links are signed with another key than the file. `labelchef campaign key --new` "
            "has replaced the key, or somebody without the key has changed the database; an earlier export shows which (--since)"
        )
    if unsigned := linked - state.counts["signed links"] if state.key is not None else 0:
        return (
            f"not proven: {unsigned} of {linked} links have no signature (the key or labelchef[sign] was missing when the "
            "round closed), so that whoever can write the database could have made them again"
        )
    return unproven(linked, state.counts["closed"] - linked, ground=state.ground)


def _public_key(given: str) -> str:
    text = given.strip()
    with contextlib.suppress(OSError, ValueError):
        if Path(given).is_file():
            words = Path(given).read_text().split()
            text = next((word for word in words if word.startswith(KEY_PREFIX)), "")
    try:
        raw = base64.b64decode(text.removeprefix(KEY_PREFIX), validate=True)
    except (ValueError, binascii.Error):
        raw = b""
    if len(raw) != 32:
        why = f"--key is {given!r}; expected a public key as `labelchef campaign key` prints it ({KEY_PREFIX}…), or its file"
        raise InvalidInputError(why, code="key")
    return KEY_PREFIX + base64.b64encode(raw).decode()


def _check_data(state: Contents, path: Path) -> str:
    """Compare the rows of an exported data set with the ledger; what was compared, in words."""
    frame = read_table(path).frame
    missing = [name for name in ("id", "split", "label", "origin") if name not in frame.columns]
    if missing:
        why = f"{path} has no column {missing[0]!r}; expected a table that `labelchef export CAMPAIGN` wrote"
        raise InvalidInputError(why, code="data")
    shown = [name for name in frame.columns if name not in OWN and not name.startswith((VOTE, "p: "))]
    seen: dict[str, set[str]] = {name: set() for name in _SPLITS}
    people, alike, copies = 0, dict[str, str](), dict[str, tuple[int, str]]()
    for number, row in enumerate(frame.to_dict("records"), start=2):
        split, key = str(row["split"]), str(row["id"])
        if split not in _SPLITS or key not in state.given[_SPLITS[split].value] or key in seen[split]:
            raise AlteredError(0, f"{path.name}, row {number}: {key!r} in {split!r} is not in the ledger, or twice")
        seen[split].add(key)
        label, expected = row["label"], state.given[_SPLITS[split].value][key]
        _, copied, original = str(row.get("flags", "")).rpartition(COPY)
        if split == "train" and copied and expected is None and key not in state.final:
            copies[key] = number, original
        item, made = copies[key][1] if key in copies else key, None
        if split == "train" and item in state.final:
            expected = made = state.final[item]
        by_people = row["origin"] == LabelOrigin.PEOPLE
        if by_people != (made is not None):
            told = "people decided it" if by_people else f"its label is from {row['origin']}"
            why = f"{path.name}, row {number}: {told}, says the data set of {key!r}, and the ledger says otherwise"
            raise AlteredError(0, why)
        if expected is not None and label != state.classes[expected]:
            why = (
                f"{path.name}, row {number}: {key!r} is {label!r} there, and {state.classes[expected]!r} by the ledger"
            )
            raise AlteredError(0, why)
        people += by_people
        content = {name.removeprefix(FIELD): _cell(name, row[name]) for name in shown}
        if content_digest(content) != state.contents[_SPLITS[split].value][key]:
            raise AlteredError(0, f"{path.name}, row {number}: the content of {key!r} is not what people saw")
        if split == "train":
            same = {
                name: text.strip() for name, text in content.items() if name != "image"
            }  # by the file, not its name
            alike[key] = content_digest(same)
    for key, (number, original) in copies.items():
        if alike[key] != alike.get(original):
            why = f"{path.name}, row {number}: {key!r} has not the content of {original!r}, of which it is said to be a copy"
            raise AlteredError(0, why)
    for name, keys in seen.items():
        if len(keys) != (there := len(state.given[_SPLITS[name].value])):
            raise AlteredError(0, f"{path.name}: {name} has {len(keys)} rows, and the ledger {there}")
    given = sum(label is not None for labels in state.given.values() for label in labels.values())
    rest = len(frame) - people - given
    return (
        f"{path.name}: all {len(frame)} rows are those of the ledger, with the content that people saw; {people} labels by "
        f"people and {given} given with the data are the same. {rest} labels are what model and sources believe: no ledger "
        "can show these"
    )


def _cell(name: str, value: object) -> str:
    if value is None or value != value:  # NaN: an empty cell
        return ""
    return str(value) if name in ("text", "image") else plain_field(value)
