"""Export of labels and votes, import of votes, report, replay, comparison of selectors."""

import tempfile
from enum import StrEnum
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import File, Form, Query, Response, UploadFile
from fastapi.responses import FileResponse, HTMLResponse
from starlette.background import BackgroundTask

from labelchef.domain.comparisons import Comparison
from labelchef.services import campaigns, replaying
from labelchef.services.compare import comparing
from labelchef.services.exchange import exports, imports
from labelchef.services.replaying import ReplayOutcome
from labelchef.services.workspace import Workspace
from labelchef.web.api.labelling import CampaignPath
from labelchef.web.forms import CompareForm
from labelchef.web.policies import CAMPAIGN, Lead, Policy, Store, answers, router
from labelchef.web.shield import FILE_POLICY
from labelchef.web.uploads import UploadRoute, saved, told_as_store_errors, upload_folder
from labelchef.web.views import ImportView

routes = router()
uploads = router(UploadRoute)


class TableFormat(StrEnum):
    """Formats of tables."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"


MEDIA_TYPES = {
    TableFormat.CSV: "text/csv; charset=utf-8",
    TableFormat.JSONL: "application/x-ndjson",
    TableFormat.PARQUET: "application/vnd.apache.parquet",
}
Format = Annotated[TableFormat, Query(description="Format of the file.")]
_TABLE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The file.",
        "content": {
            "text/csv": {"schema": {"type": "string"}},
            "application/x-ndjson": {"schema": {"type": "string"}},
            "application/vnd.apache.parquet": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


@routes.get(
    "/campaigns/{campaign}/export/labels",
    tags=["exchange"],
    response_class=FileResponse,
    responses={**answers(Policy.LEAD, CAMPAIGN), **_TABLE},
)
def export_labels(campaign: CampaignPath, _: Lead, ws: Store, format: Format = TableFormat.CSV) -> FileResponse:
    """Every training item with its present label."""
    return _file(ws, campaign, "labels", format)


@routes.get(
    "/campaigns/{campaign}/export/votes",
    tags=["exchange"],
    response_class=FileResponse,
    responses={**answers(Policy.LEAD, CAMPAIGN), **_TABLE},
)
def export_votes(campaign: CampaignPath, _: Lead, ws: Store, format: Format = TableFormat.CSV) -> FileResponse:
    """Every vote, corrections included."""
    return _file(ws, campaign, "votes", format)


def _file(ws: Workspace, campaign: str, what: str, format: TableFormat) -> FileResponse:
    slug = campaigns.summary(ws, campaign).slug
    with told_as_store_errors():
        folder = tempfile.TemporaryDirectory(prefix="labelchef-export-")
    try:
        path = FilePath(folder.name) / f"{slug}-{what}.{format.value}"
        write = exports.export_labels if what == "labels" else exports.export_votes
        write(ws, campaign, path, format=format.value)
    except BaseException:
        folder.cleanup()
        raise
    return FileResponse(
        path, media_type=MEDIA_TYPES[format], filename=path.name, background=BackgroundTask(folder.cleanup)
    )


@uploads.post(
    "/campaigns/{campaign}/import-votes",
    tags=["exchange"],
    responses=answers(
        Policy.LEAD,
        CAMPAIGN,
        (422, "votes", "a line with an unknown item or class, or a file that cannot be read; nothing is stored"),
        changes=True,
    ),
)
def import_votes(
    campaign: CampaignPath,
    _: Lead,
    ws: Store,
    file: Annotated[UploadFile, File(description="CSV, JSONL or Parquet of item, annotator, label.")],
    dry_run: Annotated[bool, Form(description="Check the file; store nothing.")] = False,
) -> ImportView:
    """Import votes of another tool. If one line cannot be used, nothing is stored."""
    with upload_folder() as folder:
        counts = imports.import_votes(ws, campaign, saved(folder, file), dry_run=dry_run)
    return ImportView(counts=counts, dry_run=dry_run)


@routes.get(
    "/campaigns/{campaign}/report",
    tags=["exchange"],
    response_class=HTMLResponse,
    responses={
        **answers(Policy.LEAD, CAMPAIGN, (422, "preparing", "there is no model yet")),
        200: {"content": {"text/html": {"schema": {"type": "string"}}}},
    },
)
def report(campaign: CampaignPath, _: Lead, ws: Store) -> Response:
    """The report as one HTML file."""
    slug = campaigns.summary(ws, campaign).slug
    headers = {
        "Content-Disposition": f'attachment; filename="{slug}-report.html"',
        "Content-Security-Policy": FILE_POLICY,
    }
    return HTMLResponse(exports.report(ws, campaign), headers=headers)


@routes.post("/campaigns/{campaign}/replay", tags=["exchange"], responses=answers(Policy.LEAD, CAMPAIGN, changes=True))
def replay(campaign: CampaignPath, _: Lead, ws: Store) -> ReplayOutcome:
    """Run the history again from the ledger and compare the hashes."""
    return replaying.replay(ws, campaign)


@routes.post(
    "/campaigns/{campaign}/compare",
    tags=["exchange"],
    responses=answers(
        Policy.LEAD,
        CAMPAIGN,
        (409, "few_labels", "too few items are decided"),
        (409, "comparing", "a comparison is running already"),
        (422, "selector", "no such selector"),
        (422, "cleanlab", "a selector needs an extra that is not installed"),
        changes=True,
    ),
)
def compare(campaign: CampaignPath, form: CompareForm, _: Lead, ws: Store) -> Comparison:
    """Replay selectors on the labels of the campaign; the answer comes when all replays are done."""
    return comparing.compare(ws, campaign, form.selectors, form.batch_size)
