"""Images of items, and charts; the browser never runs them as scripts."""

import io
import struct
from enum import StrEnum
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Annotated

from fastapi import Path, Query, Request, Response

from labelchef.domain.errors import NotFoundError
from labelchef.services import charts
from labelchef.services.labelling import tasks
from labelchef.web.api.labelling import CampaignPath, ItemPath
from labelchef.web.policies import CAMPAIGN, ITEM, Member, Policy, Store, answers, router
from labelchef.web.problems import WebError
from labelchef.web.shield import FILE_POLICY

routes = router()
SAFE_TYPES = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}
_MOST_PIXELS = 100_000_000
_MOST_BYTES = 64 * 2**20


class Theme(StrEnum):
    """Charts for a light or a dark page."""

    LIGHT = "light"
    DARK = "dark"


@routes.get(
    "/campaigns/{campaign}/items/{item:path}/image",
    tags=["labelling"],
    response_class=Response,
    responses={
        **answers(
            Policy.MEMBER,
            CAMPAIGN,
            ITEM,
            (404, "image", "the item has no image"),
            (415, "image", "not an image of a supported type"),
        ),
        200: {"description": "The image.", "content": {kind: {} for kind in SAFE_TYPES.values()}},
    },
)
def item_image(campaign: CampaignPath, item: ItemPath, _: Member, ws: Store) -> Response:
    """The image of an item. Its type comes from its content, not from the name of the file."""
    path = tasks.media(ws, campaign, item)
    try:
        stat = path.stat()
        kind = _kind(path, stat.st_mtime_ns, stat.st_size)
        content = path.read_bytes()
    except OSError:
        raise NotFoundError(f"the image of item {item!r} is not in the campaign's folder", code="image") from None
    headers = {"Cache-Control": "private, max-age=86400", "Content-Security-Policy": FILE_POLICY}
    return Response(content, media_type=kind, headers={**headers, "Content-Disposition": "inline"})


@lru_cache(maxsize=4096)
def _kind(path: FilePath, _modified: int, size: int) -> str:
    from PIL import Image

    refused = WebError(415, f"{path.name} is not a PNG, JPEG, GIF or WebP image that can be shown", code="image")
    if size > _MOST_BYTES:
        raise refused
    content = path.read_bytes()
    try:
        with Image.open(io.BytesIO(content), formats=list(SAFE_TYPES)) as image:
            if image.width * image.height > _MOST_PIXELS:
                raise refused
            kind = SAFE_TYPES[str(image.format)]
            image.verify()
    except WebError:
        raise
    except (OSError, Image.DecompressionBombError, SyntaxError, ValueError, EOFError, KeyError, struct.error):
        raise refused from None
    return kind


@routes.get(
    "/campaigns/{campaign}/charts/{chart}.svg",
    tags=["campaigns"],
    response_class=Response,
    responses={
        **answers(Policy.MEMBER, CAMPAIGN, (404, "chart", "no such chart, or nothing to draw yet")),
        200: {"description": "The chart.", "content": {"image/svg+xml": {"schema": {"type": "string"}}}},
    },
)
def chart(
    campaign: CampaignPath,
    chart: Annotated[str, Path(description=f"One of: {', '.join(charts.NAMES)}.", max_length=50)],
    request: Request,
    _: Member,
    ws: Store,
    theme: Annotated[Theme, Query(description="For a light or a dark page.")] = Theme.LIGHT,
) -> Response:
    """A chart of the campaign, drawn once per round."""
    drawn = charts.draw(ws, campaign, chart, theme.value)
    headers = {
        "Cache-Control": "private, no-cache",
        "ETag": f'"{drawn.digest}"',
        "Content-Security-Policy": FILE_POLICY,
        "Vary": "Accept-Encoding",
    }
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(drawn.gzipped, media_type="image/svg+xml", headers={**headers, "Content-Encoding": "gzip"})
    return Response(drawn.svg, media_type="image/svg+xml", headers=headers)
