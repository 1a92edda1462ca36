"""The pages: HTML from the same services as the API. Changes go through the API."""

from functools import partial
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse

from labelchef.domain.campaigns import Account
from labelchef.domain.errors import LabelchefError, StoreError
from labelchef.domain.learning import ABOUT_SOURCES
from labelchef.domain.settings import OPTIONS, Settings
from labelchef.domain.validation import ABOUT_BASELINES
from labelchef.exchange.formats import FORMATS
from labelchef.services import campaigns as service
from labelchef.services import charts, exchange, quality
from labelchef.services import progress as measuring
from labelchef.services.compare import comparing
from labelchef.services.labelling import decisions
from labelchef.services.people import accounts
from labelchef.services.workspace import Workspace
from labelchef.web.api.campaigns import list_campaigns
from labelchef.web.api.exchange import TableFormat, installed_formats
from labelchef.web.forms import ENCODERS
from labelchef.web.policies import Anyone, Lead, Member, Options, SignedIn, Store, set_cookie
from labelchef.web.problems import WebError
from labelchef.web.rendering import plain_or_gzipped, render, static_digest, static_files
from labelchef.web.views import shown_to

routes = APIRouter(include_in_schema=False, redirect_slashes=False)
_LONGEST = 500


@routes.get("/api/openapi.json")
def openapi(request: Request, _: Anyone) -> Response:
    """The API's description."""
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
def campaigns(request: Request, who: SignedIn, ws: Store, after: str | None = None) -> Response:
    """The campaigns this person may see."""
    page = list_campaigns(who, ws, after)
    return render(request, "campaigns.html", campaigns=page.entries, next=page.next)


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
        encoders=ENCODERS,
        import_root=options.import_root,
        selectors=service.selector_choices(),
        options=list(OPTIONS.items()),
        defaults=Settings().as_dict(),
    )


@routes.get("/account")
def account(request: Request, who: SignedIn, ws: Store) -> Response:
    """The account and the API tokens of the person who is signed in."""
    return render(request, "account.html", tokens=accounts.list_api_tokens(ws, who.name))


@routes.get("/people")
def people(request: Request, _: Lead, ws: Store) -> Response:
    """All accounts."""
    return render(request, "people.html", accounts=_accounts(ws))


@routes.get("/c/{campaign}")
def campaign_home(campaign: str, _: Member) -> Response:
    """A campaign opens with its Label page."""
    return RedirectResponse(f"/c/{quote(campaign, safe='')}/label", status_code=303)


@routes.get("/c/{campaign}/label")
def label(campaign: str, request: Request, who: Member, ws: Store) -> Response:
    """Where people label."""
    metric = service.settings(ws, campaign).target_metric
    closed = [one for one in service.rounds(ws, campaign) if one.validation]
    score = closed[-1].validation.get(metric) if closed and closed[-1].validation else None
    summary = shown_to(who, service.summary(ws, campaign))
    return render(request, "label.html", campaign=summary, tab="label", metric=metric, score=score)


@routes.get("/c/{campaign}/progress")
def progress(campaign: str, request: Request, who: Member, ws: Store) -> Response:
    """Progress of the campaign."""
    summary = shown_to(who, service.summary(ws, campaign))
    found = measuring.progress(ws, campaign) if who.is_lead else measuring.progress_for(ws, campaign, who.name)
    return render(
        request,
        "progress.html",
        campaign=summary,
        tab="progress",
        watch=True,
        progress=found,
        people=found.people,
        pairs=found.pairs,
        charts=charts.available(found),
        about_baselines=ABOUT_BASELINES,
        stamp=charts.stamp(ws, campaign),
    )


@routes.get("/c/{campaign}/mine")
def mine(campaign: str, request: Request, who: Member, ws: Store) -> Response:
    """The own closed rounds of the person who looks."""
    summary = shown_to(who, service.summary(ws, campaign))
    return render(request, "mine.html", campaign=summary, tab="mine", work=quality.mine(ws, campaign, who.name))


def _lead_page(part: str, campaign: str, request: Request, _: Lead, ws: Store) -> Response:
    values: dict[str, Any] = {}
    if part == "settings":
        values["changeable"] = [(name, option) for name, option in OPTIONS.items() if option.changeable]
        values["fixed"] = [(name, option) for name, option in OPTIONS.items() if not option.changeable]
    elif part == "compare":
        usual = values["usual"] = comparing.usual_selectors(service.settings(ws, campaign))
        values["selectors"] = sorted(service.selector_choices(), key=lambda one: (one[0] not in usual, one[0]))
    elif part == "export":
        values["model_formats"] = exchange.model_formats()
        values["table_formats"] = [one.value for one in TableFormat]
        values["dataset_formats"] = installed_formats()
        values["tools"] = [one.title for one in FORMATS.values() if one.people]
    elif part == "sources":
        values["about_sources"] = ABOUT_SOURCES
    elif part == "quality":
        values["about"] = quality.ABOUT
    elif part == "members":
        values["accounts"] = _accounts(ws)
    return _lead(request, ws, campaign, part, **values)


for _part in ("", "conflicts", "settings", "export", "compare", "members", "sources", "receipts", "quality"):
    routes.get(f"/c/{{campaign}}/lead/{_part}".rstrip("/"))(partial(_lead_page, _part))


def _accounts(ws: Workspace) -> list[Account]:
    return sorted(accounts.list_accounts(ws), key=lambda one: one.name)


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
    return _lead(request, ws, campaign, "ledger", page=page, filters=filters)


def _lead(request: Request, ws: Store, campaign: str, part: str, **values: Any) -> Response:
    status = service.status(ws, campaign)
    return render(
        request,
        f"lead/{part or 'overview'}.html",
        campaign=status.summary,
        status=status,
        classes=status.classes,
        metric=status.settings.target_metric,
        tab="lead",
        part=part,
        watch=part not in ("settings", "compare", "sources", "receipts", "quality"),
        about_baselines=ABOUT_BASELINES,
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
