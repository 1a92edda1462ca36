"""Export of labels, votes and the model, import of votes, report, replay."""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from fastapi import File, Form, Query, Response, UploadFile
from fastapi.responses import FileResponse, HTMLResponse
from starlette.background import BackgroundTask
from starlette.types import Receive, Scope, Send

from labelchef.base.campaigns import ImportReport
from labelchef.base.errors import InvalidInputError
from labelchef.base.files import folder_for_a_while
from labelchef.data.exchange.formats import FORMATS, sniff
from labelchef.data.exchange.records import Format as ToolFormat
from labelchef.data.files.archives import is_zip, unpack
from labelchef.server.campaigns import campaigns, trained
from labelchef.server.campaigns.trained import ReplayOutcome
from labelchef.server.export import exchange, proof, take_home
from labelchef.server.intake import importing
from labelchef.server.shared import told_below
from labelchef.server.sharing import few_at_a_time
from labelchef.server.web.forms import CampaignPath
from labelchef.server.web.policies import Api, Lead, Store
from labelchef.server.web.problems import Case, WebError
from labelchef.server.web.shield import FILE_POLICY
from labelchef.server.web.uploads import UploadRoute, saved, told_as_store_errors, upload_folder
from labelchef.server.workspace import EXPORTING, Workspace

routes = Api("exchange", "/campaigns/{campaign}")


_BUSY: Case = (429, "busy", "too many exports are being made; Retry-After says when to try again")


class TableFormat(StrEnum):
    """Formats of tables."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"


class ModelFormat(StrEnum):
    """Formats of the final model."""

    NPZ = "npz"
    ONNX = "onnx"


_TYPES = {
    TableFormat.CSV: "text/csv",
    TableFormat.JSONL: "application/x-ndjson",
    TableFormat.PARQUET: "application/vnd.apache.parquet",
}
_MODEL_TYPE, _JSON_TYPE, _ZIP_TYPE = "application/octet-stream", "application/json", "application/zip"
DATASET_FORMATS = (*TableFormat, *FORMATS)
"""Names of the formats of the data set: tables, and files of other tools."""


def installed_formats() -> list[str]:
    """Those of `DATASET_FORMATS` that can be written here: some need an extra."""
    missing = {name for name, one in FORMATS.items() if one.extra is not None and find_spec(one.extra) is None}
    return [str(name) for name in DATASET_FORMATS if name not in missing]


Format = Annotated[TableFormat, Query(description="Format of the file.")]
MOST_LINES = 1000
"""Of an import, in the answer."""
_VOTES_FILE = "CSV, JSONL or Parquet of item, annotator, label; or an export of Label Studio, Prodigy or another tool."
_BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
_TEXT: dict[str, Any] = {"schema": {"type": "string"}}
_CONTENT = dict.fromkeys(_TYPES.values(), _TEXT) | {_TYPES[TableFormat.PARQUET]: _BINARY}
_PARQUET: Case = (422, "parquet", "the extra labelchef[parquet] is not installed")
_TABLE: dict[str, Any] = {
    "response_class": FileResponse,
    "responses": {200: {"description": "The file.", "content": _CONTENT}},
}


class MadeFile(FileResponse):
    """A file that was made for this request. It is sent whole: the next request makes another one, so a part of it fits
    nothing, and Range headers are not looked at."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        headers = [(name, value) for name, value in scope["headers"] if name != b"range"]
        self.headers["accept-ranges"] = "none"
        await super().__call__({**scope, "headers": headers}, receive, send)


@routes.get(
    "/export/dataset",
    _BUSY,
    (409, "preparing", "there is no model yet"),
    (422, "format", "no such format"),
    (422, "exchange", "the rows do not fit the format; the detail says why"),
    (422, "datasets", "the extra labelchef[datasets] is not installed"),
    (422, "cleanlab", "the extra labelchef[cleanlab] is not installed"),
    (422, "argilla", "the extra labelchef[argilla] is not installed"),
    _PARQUET,
    response_class=FileResponse,
    responses={200: {"description": "The file.", "content": {**_CONTENT, _JSON_TYPE: _TEXT, _ZIP_TYPE: _BINARY}}},
)
def export_dataset(
    campaign: CampaignPath,
    _: Lead,
    ws: Store,
    format: Annotated[
        str, Query(description=f"One of: {', '.join(DATASET_FORMATS)}. Several files come as zip.", max_length=50)
    ] = TableFormat.CSV,
) -> FileResponse:
    """Every row with its content, final label, where the label comes from, votes of sources, and what is in doubt."""
    if format not in DATASET_FORMATS:
        raise WebError(422, f"format is {format!r}; expected one of {', '.join(DATASET_FORMATS)}", code="format")
    if format in FORMATS:
        return _tool_file(ws, campaign, FORMATS[format])
    table = TableFormat(format)
    return _file(ws, campaign, "dataset", take_home.export_dataset, table, _TYPES[table])


@routes.get("/export/predictions", (409, "preparing", "there is no model yet"), _BUSY, _PARQUET, **_TABLE)
def export_predictions(campaign: CampaignPath, _: Lead, ws: Store, format: Format = TableFormat.CSV) -> FileResponse:
    """What the final model says of every row."""
    return _file(ws, campaign, "predictions", take_home.export_predictions, format, _TYPES[format])


@routes.get("/export/labels", _BUSY, _PARQUET, **_TABLE)
def export_labels(campaign: CampaignPath, _: Lead, ws: Store, format: Format = TableFormat.CSV) -> FileResponse:
    """Every training item with its present label."""
    return _file(ws, campaign, "labels", exchange.export_labels, format, _TYPES[format])


@routes.get("/export/votes", _BUSY, _PARQUET, **_TABLE)
def export_votes(campaign: CampaignPath, _: Lead, ws: Store, format: Format = TableFormat.CSV) -> FileResponse:
    """Every vote, corrections included."""
    return _file(ws, campaign, "votes", exchange.export_votes, format, _TYPES[format])


@routes.get(
    "/export/ledger",
    _BUSY,
    (422, "sign", "the extra labelchef[sign] is not installed"),
    response_class=FileResponse,
    responses={200: {"description": "The file.", "content": {_TYPES[TableFormat.JSONL]: _TEXT}}},
)
def export_ledger(
    campaign: CampaignPath,
    _: Lead,
    ws: Store,
    pseudonyms: Annotated[bool, Query(description="Keyed hashes in the place of names.")] = False,
) -> FileResponse:
    """Everything that happened, chained by hashes and signed, for `labelchef verify`."""
    write = partial(proof.export_ledger, pseudonyms=pseudonyms)
    return _file(ws, campaign, "ledger", write, TableFormat.JSONL, _TYPES[TableFormat.JSONL])


@routes.get(
    "/export/model",
    _BUSY,
    (409, "preparing", "there is no model yet"),
    (422, "onnx", "the extra labelchef[onnx] is not installed"),
    response_class=FileResponse,
    responses={200: {"description": "The file.", "content": {_MODEL_TYPE: _BINARY}}},
)
def export_model(
    campaign: CampaignPath,
    _: Lead,
    ws: Store,
    format: Annotated[ModelFormat, Query(description="Format of the file.")] = ModelFormat.NPZ,
) -> FileResponse:
    """The final model, trained from scratch on the labels as they stand; the answer comes when it is trained."""
    return _file(ws, campaign, "model", exchange.export_model, format, _MODEL_TYPE)


def _tool_file(ws: Workspace, campaign: str, tool: ToolFormat) -> FileResponse:
    """The data set as another tool reads it: one file as it is, several as a zip."""
    slug = campaigns.summary(ws, campaign).slug
    with contextlib.ExitStack() as stack:
        with told_as_store_errors():
            folder = stack.enter_context(folder_for_a_while(ws.home, EXPORTING))
        with few_at_a_time():
            path = take_home.export_packed(ws, campaign, folder, slug, tool.name)
        delete = BackgroundTask(stack.pop_all().close)  # after the file was sent
    return MadeFile(path, media_type=media_type_of(path), filename=path.name, background=delete)


def media_type_of(path: Path) -> str:
    """The type of a file that is exported, by its ending."""
    known = {".json": _JSON_TYPE, ".zip": _ZIP_TYPE, ".html": "text/html"}
    return (known | {f".{one}": kind for one, kind in _TYPES.items()}).get(path.suffix, _MODEL_TYPE)


def _file(
    ws: Workspace, campaign: str, what: str, write: Callable[..., Path], format: StrEnum, kind: str
) -> FileResponse:
    name = f"{campaigns.summary(ws, campaign).slug}-{what}.{format}"
    with contextlib.ExitStack() as stack:
        with told_as_store_errors():
            folder = stack.enter_context(folder_for_a_while(ws.home, EXPORTING))
        with few_at_a_time():
            path = write(ws, campaign, folder / name, format=format.value)
        delete = BackgroundTask(stack.pop_all().close)  # after the file was sent
    return MadeFile(path, media_type=kind, filename=name, background=delete)


@routes.post(
    "/import-votes",
    (422, "file", "a zip that cannot be unpacked"),
    (422, "same_name", "the file came twice"),
    (422, "memory", "a file that needs more memory than one may take"),
    (422, "exchange", "a file of another tool that is damaged or holds nothing"),
    (422, "excel", "the extra labelchef[excel] is not installed"),
    _PARQUET,
    (422, "votes", "a line with an unknown item or class, or a file that cannot be read; nothing is stored"),
    route_class_override=UploadRoute,
)
def import_votes(
    campaign: CampaignPath,
    who: Lead,
    ws: Store,
    file: Annotated[UploadFile, File(description=_VOTES_FILE)],
    dry_run: Annotated[bool, Form(description="Check the file; store nothing.")] = False,
) -> ImportReport:
    """Import votes of another tool: what became of each line, of at most 1,000. If one cannot be used, nothing is stored.

    The ledger says of each vote who has imported it.
    """
    with upload_folder() as folder, told_below(folder):
        path = _unpacked(saved(folder, file))
        report = importing.import_votes(ws, campaign, who.name, path, dry_run=dry_run)
    return replace(report, lines=report.lines[:MOST_LINES])


def _unpacked(path: Path) -> Path:
    """The file of answers in a zip, as `export_dataset` gives it; other files as they are."""
    if not is_zip(path):
        return path
    folder = unpack(path, path.parent)
    inside = [folder, *sorted(one for one in folder.iterdir() if one.is_file())]
    found = next((one for one in inside if sniff(one) is not None), None)
    if found is None:
        why = f"{path.name} holds no file of a tool that is known here; unpack it and send the file with the answers"
        raise InvalidInputError(why, code="votes")
    return found


@routes.get(
    "/report",
    _BUSY,
    (409, "preparing", "there is no model yet"),
    (422, "report", "the extra labelchef[report] is not installed"),
    response_class=HTMLResponse,
    responses={200: {"content": {"text/html": _TEXT}}},
)
def report(campaign: CampaignPath, _: Lead, ws: Store) -> Response:
    """The report as one HTML file."""
    name = f"{campaigns.summary(ws, campaign).slug}-report.html"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Content-Security-Policy": FILE_POLICY}
    with few_at_a_time():
        page = exchange.report(ws, campaign)
    return HTMLResponse(page, headers=headers)


@routes.post("/replay", _BUSY)
def replay(campaign: CampaignPath, _: Lead, ws: Store) -> ReplayOutcome:
    """Run the history again from the ledger and compare the hashes."""
    with few_at_a_time():
        return trained.replay(ws, campaign)
