"""The pages: HTML from the same services as the API. Changes go through the API."""

import contextlib
from dataclasses import replace
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse

from labelchef.base.campaigns import Shelf, SplitName
from labelchef.base.errors import LabelchefError, StoreError
from labelchef.base.settings import OPTIONS, Settings
from labelchef.base.validation import ABOUT_BASELINES
from labelchef.data.exchange.formats import FORMATS
from labelchef.server.campaigns import campaigns as service
from labelchef.server.campaigns import charts
from labelchef.server.campaigns import progress as measuring
from labelchef.server.campaigns.naming import free_name
from labelchef.server.export import exchange
from labelchef.server.items import actions, decisions, items
from labelchef.server.jobs import jobs
from labelchef.server.people import accounts, quality
from labelchef.server.web.api.campaigns import list_campaigns
from labelchef.server.web.api.exchange import TableFormat, installed_formats
from labelchef.server.web.api.items import FILTER_NAMES, Filters, shown, shown_detail
from labelchef.server.web.forms import ItemPath
from labelchef.server.web.policies import Anyone, Lead, Member, Options, SignedIn, Store, WorkspaceLead, set_cookie
from labelchef.server.web.problems import WebError
from labelchef.server.web.rendering import plain_or_gzipped, render, static_digest, static_files
from labelchef.server.web.views import shown_to
from labelchef.server.workspace import Workspace

routes = APIRouter(include_in_schema=False, redirect_slashes=False)
_LONGEST = 500
_LINES = 50


@routes.get("/api/openapi.json")
def openapi(request: Request, _: Anyone) -> Response:
    """The API's description."""
    with contextlib.suppress(SystemError):  # Python 3.11, when two threads parse source at once: the next try is right
        return JSONResponse(request.app.openapi())
    return JSONResponse(request.app.openapi())


@routes.get("/static/{digest}/{path:path}")
async def static(digest: str, path: str, request: Request, _: Anyone) -> Response:
    """A file of the page."""
    file = static_files().get(path)
    if file is None or digest != static_digest():
        raise WebError(404, "there is no such file; load the page again", code="static")
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    return plain_or_gzipped(request, file.content, file.gzipped, file.media_type, headers)


@routes.get("/start")
def start(ws: Store, options: Options, request: Request, _: Anyone, token: str = "", then: str = "/") -> Response:
    """The one-time link of a laptop: signs in; the link does not work again."""
    try:
        signed = accounts.redeem_link(ws, token)
    except StoreError:
        raise
    except LabelchefError as error:
        return render(request, "sign_in.html", code=403, then="/", reason=str(error))
    response = RedirectResponse(local_path(then), status_code=303)
    set_cookie(response, options, signed)
    return response


@routes.get("/sign-in")
def sign_in(request: Request, who: Anyone, then: str = "/") -> Response:
    """Where people sign in."""
    there = local_path(then)
    if who is not None:
        return RedirectResponse(there, status_code=303)
    return render(request, "sign_in.html", then=there, reason=None)


@routes.get("/")
def campaigns(
    request: Request, who: SignedIn, ws: Store, after: str | None = None, shelf: Shelf = Shelf.OPEN
) -> Response:
    """The campaigns this person may see: those in use, in the archive, or deleted."""
    page = list_campaigns(who, ws, after, shelf=shelf)
    person = None if who.is_lead else who.name
    shelves = [one for one in Shelf if one in (Shelf.OPEN, shelf) or service.list_campaigns(ws, person, one)]
    return render(request, "campaigns.html", campaigns=page.entries, next=page.next, shelf=shelf, shelves=shelves)


@routes.get("/new")
def new(
    request: Request, _: Lead, options: Options, intake: Annotated[str, Query(max_length=_LONGEST)] = ""
) -> Response:
    """Make a campaign."""
    return render(
        request,
        "new.html",
        intake=intake,
        most_mb=options.max_upload_mb,
        import_root=options.import_root,
        selectors=service.selector_choices(),
        options=OPTIONS.items(),
        defaults=Settings().as_dict(),
    )


@routes.get("/account")
def account(request: Request, who: SignedIn, ws: Store) -> Response:
    """The account and the API tokens of the person who is signed in."""
    return render(request, "account.html", tokens=accounts.list_api_tokens(ws, who.name))


@routes.get("/people")
def people(request: Request, _: Lead, ws: Store) -> Response:
    """All accounts."""
    return render(request, "people.html", accounts=accounts.list_accounts(ws))


@routes.get("/c/{campaign}")
def campaign_home(campaign: str, _: Member) -> Response:
    """A campaign opens with its Label page."""
    return RedirectResponse(f"/c/{quote(campaign, safe='')}/label", status_code=303)


@routes.get("/c/{campaign}/label")
def label(campaign: str, request: Request, who: Member, ws: Store) -> Response:
    """Where people label."""
    metric = service.settings(ws, campaign).target_metric
    last = next((one for one in reversed(service.rounds(ws, campaign)) if one.validation), None)
    score = last.validation.get(metric) if last and last.validation else None
    figure = last.figures.get("validation", {}).get(metric) if last else None
    summary = shown_to(who, service.summary(ws, campaign))
    return render(request, "label.html", campaign=summary, tab="label", metric=metric, score=score, figure=figure)


@routes.get("/c/{campaign}/progress")
def progress(campaign: str, request: Request, who: Member, ws: Store) -> Response:
    """Progress of the campaign as annotators see it; leads have a page of their own."""
    if who.may_lead:
        return RedirectResponse(f"/c/{quote(campaign, safe='')}/lead", status_code=303)
    summary = shown_to(who, service.summary(ws, campaign))
    found = measuring.progress_for(ws, campaign, who.name)
    values = _progress_values(ws, campaign, found)
    return render(request, "progress.html", campaign=summary, tab="progress", watch=True, **values)


def _progress_values(ws: Workspace, campaign: str, found: measuring.ProgressReport) -> dict[str, Any]:
    return {
        "progress": found,
        "charts": charts.available(found),
        "stamp": charts.stamp(ws, campaign),
        "about_baselines": ABOUT_BASELINES,
    }


@routes.get("/c/{campaign}/mine")
def mine(campaign: str, request: Request, who: Member, ws: Store) -> Response:
    """The own closed rounds of the person who looks."""
    summary = shown_to(who, service.summary(ws, campaign))
    return render(request, "mine.html", campaign=summary, tab="mine", work=quality.mine(ws, campaign, who.name))


def _lead_page(part: str, campaign: str, request: Request, _: Lead, ws: Store, options: Options) -> Response:
    values: dict[str, Any] = {}
    if part in ("", "people"):
        found = measuring.progress(ws, campaign)
        values = _progress_values(ws, campaign, found) | {"done": {one.number: one for one in found.rounds}}
    if part == "people":
        values |= {"about": quality.ABOUT, "accounts": accounts.list_accounts(ws)}
    elif part == "settings":
        values["selectors"] = service.selector_choices()
        values["grace_days"] = f"{options.grace_days:g}"
        values["options"] = OPTIONS.items()
    elif part == "take-home":
        values["model_formats"] = exchange.model_formats()
        values["table_formats"] = [one.value for one in TableFormat]
        values["dataset_formats"] = installed_formats()
        values["tools"] = [one.title for one in FORMATS.values() if one.people]
        values["kept_days"], values["most_bytes"] = jobs.KEPT_DAYS, f"{jobs.MOST_BYTES / 2**30:g} GiB"
    return _lead(request, ws, campaign, part, **values)


for _part in ("", "sources", "people", "settings", "take-home"):
    routes.get(f"/c/{{campaign}}/lead/{_part}".rstrip("/"))(partial(_lead_page, _part))


def _moved(there: str, campaign: str, _: Lead) -> Response:
    return RedirectResponse(f"/c/{quote(campaign, safe='')}/lead/{there}", status_code=308)


_MOVED = {
    "conflicts": "items?view=conflicts",
    "discussions": "items?view=comments",
    "guidelines": "settings#guidelines",
    "members": "people",
    "quality": "people#quality",
    "export": "take-home",
    "jobs": "take-home",
}
"""Addresses of pages before there were fewer of them → where each one's content is now."""
for _part, _there in _MOVED.items():
    routes.get(f"/c/{{campaign}}/lead/{_part}")(partial(_moved, _there))


@routes.get("/c/{campaign}/lead/copy")
def copy(campaign: str, request: Request, _: WorkspaceLead, ws: Store) -> Response:
    """Make a copy with other settings."""
    with ws.reading() as connection:
        free = free_name(connection, service.summary(ws, campaign).name)
    values: dict[str, Any] = {"options": OPTIONS.items(), "selectors": service.selector_choices(), "free": free}
    return _lead(request, ws, campaign, "settings", template="copy", **values)


@routes.get("/c/{campaign}/lead/source")
def lead_source(
    campaign: str, request: Request, _: Lead, ws: Store, name: Annotated[str, Query(max_length=1000)] = ""
) -> Response:
    """One source; without a name, a new rule."""
    return _lead(request, ws, campaign, "sources", template="source", name=name)


@routes.get("/c/{campaign}/lead/ledger")
def lead_ledger(
    campaign: str,
    request: Request,
    _: Lead,
    ws: Store,
    kind: Annotated[str, Query(pattern="^(vote|decision|change)?$")] = "",
    item: Annotated[str, Query(max_length=_LONGEST)] = "",
    person: Annotated[str, Query(max_length=_LONGEST)] = "",
    after: Annotated[str | None, Query(max_length=_LONGEST)] = None,
) -> Response:
    """Votes, decisions and changes, with filters."""
    filters = {"kind": kind, "item": item, "person": person}
    given = {name: value or None for name, value in filters.items()}
    page = decisions.ledger(ws, campaign, after=after, limit=50, **given)
    return _lead(request, ws, campaign, "take-home", template="ledger", page=page, filters=filters)


@routes.get("/c/{campaign}/lead/items")
def lead_items(
    campaign: str,
    request: Request,
    _: Lead,
    ws: Store,
    query: Filters,
    view: Annotated[str, Query(pattern="^(conflicts|comments|doubts)?$")] = "",
    after: Annotated[str | None, Query(max_length=_LONGEST)] = None,
) -> Response:
    """All items with filters, which are in the address; or those with a conflict, with comments, with answers in doubt."""
    if view:
        return _lead(request, ws, campaign, "items", template="view", view=view)
    found = items.page(ws, campaign, query, after=after, limit=_LINES)
    values = {name: value for name, value in request.query_params.items() if name in FILTER_NAMES and value}
    return render(
        request,
        "lead/items.html",
        **_items_frame(ws, campaign),
        page=replace(found, entries=tuple(shown(campaign, line) for line in found.entries)),
        filters={name: values.get(name, "") for name in FILTER_NAMES},
        chips=[(name, values[name], _without(values, name)) for name in FILTER_NAMES if name in values],
        rest=urlencode(values),
        first=after is None,
        sources=items.source_names(ws, campaign),
        people=items.voters(ws, campaign),
        most=actions.MOST,
    )


def _without(values: dict[str, str], name: str) -> str:
    return urlencode({key: value for key, value in values.items() if key != name})


@routes.get("/c/{campaign}/lead/items/{item:path}")
def lead_item(
    campaign: str,
    item: ItemPath,
    request: Request,
    _: Lead,
    ws: Store,
    split: Annotated[SplitName, Query()] = SplitName.TRAIN,
) -> Response:
    """Everything about one item."""
    found = shown_detail(campaign, items.detail(ws, campaign, item, split))
    return render(request, "lead/item.html", **_items_frame(ws, campaign), found=found, line=found.line)


def _items_frame(ws: Store, campaign: str) -> dict[str, Any]:
    """What the pages of items show around them; less than other pages of a lead, so that they stay fast."""
    return {
        "campaign": service.summary(ws, campaign),
        "classes": items.class_names(ws, campaign),
        "tab": "lead/items",
    }


def _lead(request: Request, ws: Store, campaign: str, part: str, template: str = "", **values: Any) -> Response:
    status = service.status(ws, campaign)
    return render(
        request,
        f"lead/{template or part.replace('-', '_') or 'overview'}.html",
        campaign=status.summary,
        status=status,
        classes=status.classes,
        metric=status.settings.target_metric,
        tab=f"lead/{part}".rstrip("/"),
        watch=part in ("", "items", "people", "take-home"),
        **values,
    )


def local_path(then: str) -> str:
    """A path of this server to continue at; for anything else the start page.

    >>> local_path("/c/digits/label"), local_path("//evil.example/"), local_path("https://evil.example/")
    ('/c/digits/label', '/', '/')
    """
    plain = then.startswith("/") and not then.startswith(("//", "/\\")) and then.isprintable() and "\\" not in then
    return then if plain else "/"


def error_page(request: Request, status: int, title: str, detail: str) -> Response:
    """An error as a page; where signing in helps, the page to sign in."""
    if status == 401:
        there = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"/sign-in?then={quote(there, safe='')}", status_code=303)
    return render(request, "error.html", code=status, title=title, detail=detail)
