"""Templates and files of the page: all values are escaped; no script or style is inline.

The files are read once. Their digest is in their address, so browsers may cache them without limit.
"""

import gzip
import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from labelchef.base.campaigns import CampaignSummary
from labelchef.server.web.policies import Who

_PLACE = re.compile(r"\{(\w+)\}")
_METRICS = {"f1_macro": "macro-F1", "f1": "F1"}
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True)
class StaticFile:
    """A file of the page."""

    content: bytes
    gzipped: bytes
    media_type: str


@cache
def static_files() -> dict[str, StaticFile]:
    """Path below static/ → file."""
    folder = Path(__file__).with_name("static")
    found = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.suffix in _TYPES}
    contents = {name: path.read_bytes() for name, path in found.items()}
    return {
        name: StaticFile(content, gzip.compress(content, 6, mtime=0), _TYPES[found[name].suffix])
        for name, content in contents.items()
    }


@cache
def static_digest() -> str:
    """A digest of all of them."""
    parts = (path.encode() + b"\0" + file.content for path, file in static_files().items())
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def plain_or_gzipped(
    request: Request, plain: bytes, gzipped: bytes, media_type: str, headers: Mapping[str, str]
) -> Response:
    """What the browser accepts of the two."""
    sent = {**headers, "Vary": "Accept-Encoding"}
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(plain, media_type=media_type, headers=sent)
    return Response(gzipped, media_type=media_type, headers={**sent, "Content-Encoding": "gzip"})


@cache
def environment() -> Environment:
    """The templates with their filters, and `_`, which marks their texts."""
    found = Environment(
        loader=PackageLoader("labelchef.server.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(thousands=thousands, score=score, details=_details, share=share, sentence=sentence)
    found.filters.update(iso=lambda moment: moment.isoformat(timespec="seconds"), isfinite=math.isfinite)
    found.globals["_"] = text
    found.filters["zipped"] = lambda words: [(word, word) for word in words]
    found.filters["metric"] = lambda name: _METRICS.get(name, name)
    return found


def render(request: Request, template: str, *, code: int = 200, **values: Any) -> Response:
    """A page for the person who asks; a campaign that is asked for by an earlier address leads to its present one."""
    campaign: CampaignSummary | None = values.get("campaign")
    asked = request.path_params.get("campaign")
    if campaign is not None and asked not in (None, campaign.slug, campaign.id):
        rest = request.url.path.removeprefix("/c/").partition("/")[2]
        there = f"/c/{quote(campaign.slug)}/{rest}".rstrip("/")
        return RedirectResponse(f"{there}?{request.url.query}" if request.url.query else there, status_code=308)
    who: Who | None = getattr(request.state, "who", None)
    shown = {
        "me": None if who is None else who.account,
        "may_lead": who is not None and who.may_lead,
        "csrf": (who and who.csrf) or "",
        "team": request.app.state.options.team,
        "static": f"/static/{static_digest()}",
        "campaign": None,
        "time_tag": time_tag,
        "tab": "",
        "watch": False,
        **values,
    }
    return HTMLResponse(environment().get_template(template).render(shown), status_code=code)


def text(message: str, /, **values: object) -> str:
    """The message with its places filled; values are escaped by the template, unless they are markup.

    Templates mark each of their texts with it, as `t` of `static/js/texts.js` does in scripts, so that they can be collected.

    >>> text("{n} of {all} asked", n=3, all=10)
    '3 of 10 asked'
    """
    if any(isinstance(value, Markup) for value in values.values()):
        return Markup(_PLACE.sub(lambda place: str(escape(values[place[1]])), str(escape(message))))
    return _PLACE.sub(lambda place: str(values[place[1]]), message) if values else message


def time_tag(moment: datetime) -> Markup:
    """A time that the page shows in the reader's zone."""
    iso = moment.isoformat(timespec="seconds")
    return Markup('<time datetime="{}">{}</time>').format(iso, iso)


def thousands(number: int) -> str:
    """A number with thin spaces.

    >>> thousands(100000)
    '100\u202f000'
    """
    return f"{number:,}".replace(",", "\u202f")


def score(value: float | None) -> str:
    """A metric with three digits, a dash where there is none."""
    return "–" if value is None else f"{value:.3f}"


def share(value: float | None) -> str:
    """A share in per cent, a dash where there is none."""
    return "–" if value is None else f"{100 * value:.0f}\u202f%"


def sentence(text: str) -> str:
    """A message as a sentence.

    >>> sentence("round 5 is open")
    'Round 5 is open.'
    """
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) or not text else ".")


def _details(what: Mapping[str, Any]) -> str:
    """The details of a ledger entry, as text."""
    shown = {k: v for k, v in what.items() if v is not None and v is not False and v not in ("", "person")}
    return ", ".join(f"{k.replace('_', ' ')}: {_short(v)}" for k, v in shown.items())


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return "yes" if value is True else str(value)
