"""Templates: all values are escaped; no script or style is inline."""

import math
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from labelchef.web.identity import Who, csrf_token
from labelchef.web.static_files import static_digest

METRIC_NAMES = {"f1_macro": "macro-F1", "accuracy": "accuracy", "f1": "F1", "loss": "loss"}


@cache
def environment() -> Environment:
    """The templates with their filters."""
    found = Environment(
        loader=PackageLoader("labelchef.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(thousands=thousands, iso=_iso, score=score, details=_details, share=share, sentence=sentence)
    found.filters["isfinite"] = math.isfinite
    return found


def render(request: Request, template: str, *, code: int = 200, **values: Any) -> HTMLResponse:
    """A page for the person who asks."""
    who: Who | None = getattr(request.state, "who", None)
    shown = {
        "me": None if who is None else who.account,
        "csrf": "" if who is None or who.session is None else csrf_token(who.session),
        "team": request.app.state.options.team,
        "static": f"/static/{static_digest()}",
        "campaign": None,
        "tab": "",
        "watch": False,
        **values,
    }
    return HTMLResponse(environment().get_template(template).render(shown), status_code=code)


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


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")


def _details(what: Mapping[str, Any]) -> str:
    """The details of a ledger entry, as text."""
    shown = {k: v for k, v in what.items() if v is not None and v is not False and v not in ("", "person")}
    return ", ".join(f"{k.replace('_', ' ')}: {_short(v)}" for k, v in shown.items())


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return "yes" if value is True else str(value)
