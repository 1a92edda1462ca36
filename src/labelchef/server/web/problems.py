"""Errors in answers: RFC 9457 problem details, with a stable code and a sentence."""

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from labelchef.base import errors
from labelchef.base.events import FACTS, note
from labelchef.server.web.watching import IN_SCOPE, REQUEST_ID

MEDIA_TYPE = "application/problem+json"
_log = logging.getLogger("labelchef.server.web")
Case = tuple[int, str, str]
"""(status, code, when it occurs) of a problem."""

STATUSES: list[tuple[type[errors.LabelchefError], int]] = [
    (errors.ThrottledError, 429),
    (errors.ForbiddenError, 403),
    (errors.NotFoundError, 404),
    (errors.ConflictError, 409),
    (errors.StoreError, 503),
    (errors.LabelchefError, 422),
]
"""The first class an error belongs to gives its status."""

TITLES = {
    400: "The request cannot be read",
    401: "Sign in first",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    406: "Not acceptable",
    409: "Not possible in the present state",
    413: "Too large",
    415: "Not a type that can be used",
    421: "Not a name of this server",
    422: "The input cannot be used as it is",
    429: "Too many attempts",
    500: "The server failed",
    503: "Not available now",
}


class FieldProblem(BaseModel):
    """One part of the input that cannot be used."""

    where: str = Field(examples=["body.label"])
    what: str


class Problem(BaseModel):
    """What went wrong, what was expected, what to do (RFC 9457)."""

    type: str = Field(examples=["urn:labelchef:problem:campaign"])
    title: str
    status: int
    detail: str
    code: str = Field(description="Stable name of the problem, for programs.", examples=["campaign"])
    suggestion: str | None = Field(None, description="With `name_taken`: a name that is free.")
    campaign: str | None = Field(None, description="With `name_taken`: the campaign that has the name.")
    now: dict[str, Any] | None = Field(None, description="With `changed`: what stands now, by name.")
    errors: list[FieldProblem] = Field(
        default_factory=list, description="The parts of the input, where there are several."
    )


class WebError(errors.LabelchefError):
    """An error of the request itself, with its own status."""

    def __init__(self, status: int, message: str, *, code: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message, code=code)
        self.status = status
        self.headers = dict(headers or {})


def problem(
    status: int,
    detail: str,
    code: str,
    *,
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> Response:
    """A problem as a response, with `more` parts of `Problem`; the log of the request has its code."""
    note(code=code)
    body = Problem(
        type=f"urn:labelchef:problem:{code}",
        title=TITLES.get(status, "It did not work"),
        status=status,
        detail=detail,
        code=code,
        **more,
    )
    kept = {"Cache-Control": "no-store", **(headers or {})}
    told = body.model_dump(exclude_none=True, exclude={"now"}) | ({} if body.now is None else {"now": body.now})
    return JSONResponse(told, status_code=status, media_type=MEDIA_TYPE, headers=kept)


STORE = {
    "database_down": "the database does not answer; nothing was changed. Try again, or tell a lead",
    "database_gone": "the database is gone; nothing was changed. Tell a lead",
    "log_gone": "a file of the database was moved or deleted; nothing more is stored. Tell a lead",
    "database_rights": "the database cannot be opened or written; nothing was changed. Tell a lead",
    "database_damaged": "the database is damaged; nothing was changed. Tell a lead",
    "database": "the database refused this; nothing was changed. Tell a lead",
    "locked": "another process holds the database; nothing was changed. Try again",
    "disk_full": "the server's disk is full; nothing was changed. Tell a lead",
    "folder": "a folder of the server cannot be read or written; nothing was changed. Tell a lead",
    "home": "nothing can be written to the server's folder; nothing was changed. Tell a lead",
    "out": "the server cannot write the file. Tell a lead",
    "key": "the server's signing key cannot be read. Tell a lead",
    "array_missing": "a file of the campaign is missing. Tell a lead",
    "array_damaged": "a file of the campaign is damaged. Tell a lead",
    "array_digest": "a file of the campaign is not what was stored. Tell a lead",
}
"""Code of a store error → what annotators are told; the error itself may name paths and addresses."""
_STORE_ELSE = "the store cannot be used just now; nothing was changed. Tell a lead"


def sentence_for(request: Request, error: errors.LabelchefError) -> str:
    """The sentence about an error; the details of a store error are for leads only."""
    who = getattr(request.state, "who", None)
    if not isinstance(error, errors.StoreError) or (who is not None and who.is_lead):
        return str(error)
    return STORE.get(error.code, _STORE_ELSE)


def of_error(request: Request, error: errors.LabelchefError) -> Response:
    """The answer to an error of labelchef; store errors are also logged in full."""
    if isinstance(error, errors.StoreError):
        _log.error("%s", error)
    if isinstance(error, WebError):
        return problem(error.status, str(error), error.code, headers=error.headers)
    status = 401 if error.code == "credentials" else next(s for kind, s in STATUSES if isinstance(error, kind))
    headers = {"Retry-After": str(math.ceil(error.retry_after))} if isinstance(error, errors.ThrottledError) else None
    if isinstance(error, errors.NameTakenError):
        return problem(status, str(error), error.code, suggestion=error.suggestion, campaign=error.campaign)
    if isinstance(error, errors.ChangedError):
        return problem(status, str(error), error.code, now=error.now)
    return problem(status, sentence_for(request, error), error.code, headers=headers)


PageError = Callable[[Request, int, str, str], Response]
"""(request, status, title, detail) → the page that shows an error."""


def install(app: FastAPI, page: PageError) -> None:
    """Answer every error of the app: with a problem, or with a page if a page was requested."""

    def told(request: Request, answer: Response, detail: str) -> Response:
        if request.url.path.startswith("/api/") or "text/html" not in request.headers.get("accept", ""):
            return answer
        return page(request, answer.status_code, TITLES.get(answer.status_code, "It did not work"), detail)

    @app.exception_handler(errors.LabelchefError)
    def known(request: Request, error: errors.LabelchefError) -> Response:
        return told(request, of_error(request, error), sentence_for(request, error))

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, error: RequestValidationError) -> Response:
        parts = [
            FieldProblem(where=".".join(str(p) for p in e["loc"]), what=str(e["msg"])) for e in error.errors()[:20]
        ]
        why = "; ".join(f"{p.where}: {p.what}" for p in parts[:3]) or "it cannot be read"
        answer = problem(422, f"{why}. /api/openapi.json says what is expected", "input", errors=parts)
        return told(request, answer, why)

    @app.exception_handler(HTTPException)
    def http(request: Request, error: HTTPException) -> Response:
        code = {404: "route", 405: "method", 400: "request"}.get(error.status_code, "http")
        detail = _HTTP.get(error.status_code, str(error.detail))
        return told(request, problem(error.status_code, detail, code, headers=error.headers), detail)

    @app.exception_handler(Exception)
    def unknown(request: Request, error: Exception) -> Response:
        number = request.scope.get(IN_SCOPE, "")
        _log.error("a request failed", exc_info=error, extra={FACTS: {"request": number}})
        detail = "the server failed with an unexpected error; the details are in its log"
        answer = told(request, problem(500, detail, "internal"), detail)
        answer.headers[REQUEST_ID] = number
        return answer


_HTTP = {404: "there is nothing at this address", 405: "this address does not take this method"}

ELSEWHERE: tuple[Case, ...] = (
    (404, "route", "there is nothing at this address"),
    (405, "method", "this address does not take this method"),
    (500, "internal", "a defect of the server; its log has the details"),
)
"""Problems of no route, or of every one."""
CODES: dict[int, dict[str, str]] = {}
"""Status → code → when it occurs, of all problems; filled by `fails` and part of the OpenAPI document."""


def fails(*cases: Case) -> dict[int | str, dict[str, Any]]:
    """OpenAPI responses of the cases."""
    by_status: dict[int, list[str]] = {}
    for status, code, when in cases:
        by_status.setdefault(status, []).append(f"`{code}`: {when}")
        CODES.setdefault(status, {})[code] = when
    schema = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return {
        status: {"description": f"{TITLES[status]}. " + "; ".join(lines) + ".", "content": {MEDIA_TYPE: schema}}
        for status, lines in by_status.items()
    }
