"""Images that people uploaded, sent so that a browser shows them and never runs them. Their type comes from their content."""

import io
import struct
import threading
from functools import lru_cache
from pathlib import Path

from fastapi import Response

from labelchef.base.errors import NotFoundError
from labelchef.server.web.problems import WebError
from labelchef.server.web.shield import FILE_POLICY

SAFE_TYPES = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}
_MOST_PIXELS = 100_000_000
_MOST_BYTES = 64 * 2**20
_SMALL_BYTES, _SMALL_SIDE = 32 * 2**10, 144
_reducing = threading.Lock()


def image_response(path: Path, of: str, *, small: bool = False) -> Response:
    """The image, or with `small` one for a list; `of` says in an error what it is an image of."""
    try:
        stat = path.stat()
        kind = _kind(path, stat.st_mtime_ns, stat.st_size)
        reduced = _reduced(path, stat.st_mtime_ns) if small and stat.st_size > _SMALL_BYTES else None
        content, kind = (path.read_bytes(), kind) if reduced is None else (reduced, SAFE_TYPES["JPEG"])
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


@lru_cache(maxsize=2048)
def _reduced(path: Path, _modified: int) -> bytes | None:
    """The image as a JPEG of at most 144 pixels a side, on white; None where it is better sent as it is. One at a time."""
    from PIL import Image, ImageOps

    try:
        with _reducing, Image.open(path, formats=list(SAFE_TYPES)) as image:
            image.draft("RGB", (2 * _SMALL_SIDE, 2 * _SMALL_SIDE))  # a JPEG is decoded at a fraction of its size
            if image.mode not in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK"):
                return None  # more than 8 bits a pixel: what is white in it is not known
            image.thumbnail((_SMALL_SIDE, _SMALL_SIDE))
            shown = ImageOps.exif_transpose(image).convert("RGBA")
    except (OSError, Image.DecompressionBombError, SyntaxError, ValueError, EOFError, struct.error):
        return None  # a browser may still show what there is of it
    flat = Image.new("RGB", shown.size, "white")
    flat.paste(shown, mask=shown.getchannel("A"))
    buffer = io.BytesIO()
    flat.save(buffer, "JPEG", quality=80)
    return buffer.getvalue()
