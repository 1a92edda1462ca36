"""Images that people uploaded, sent so that a browser shows them and never runs them. Their type comes from their content."""

import io
import struct
from functools import lru_cache
from pathlib import Path

from fastapi import Response

from labelchef.domain.errors import NotFoundError
from labelchef.web.problems import WebError
from labelchef.web.shield import FILE_POLICY

SAFE_TYPES = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}
_MOST_PIXELS = 100_000_000
_MOST_BYTES = 64 * 2**20


def image_response(path: Path, of: str) -> Response:
    """The image; `of` says in an error what it is an image of."""
    try:
        stat = path.stat()
        kind = _kind(path, stat.st_mtime_ns, stat.st_size)
        content = path.read_bytes()
    except OSError:
        raise NotFoundError(f"the image of {of} is no longer there", code="image") from None
    headers = {"Cache-Control": "private, max-age=86400", "Vary": "Cookie", "Content-Security-Policy": FILE_POLICY}
    return Response(content, media_type=kind, headers={**headers, "Content-Disposition": "inline"})


@lru_cache(maxsize=4096)
def _kind(path: Path, _modified: int, size: int) -> str:
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
    except (OSError, Image.DecompressionBombError, SyntaxError, ValueError, EOFError, KeyError, struct.error):
        raise refused from None
    return kind
