"""The OpenAPI document is complete, and schemathesis finds nothing that breaks the server."""

import io
from collections.abc import Iterator
from typing import Any, cast

import pytest
import schemathesis
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from labelchef.base.campaigns import Role
from labelchef.server.intake import steps
from labelchef.server.people import accounts
from labelchef.server.web.app import create_app
from labelchef.server.web.options import ServeOptions
from labelchef.server.workspace import Workspace, open_workspace
from tests.web.conftest import PASSWORD, make_campaign
from tests.web.raw_files import tweet_files


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FastAPI, str]]:
    """An app with a campaign 'animals', and a lead's token."""
    home = tmp_path_factory.mktemp("home")
    with open_workspace(home) as ws:
        accounts.create_account(ws, "lead", Role.LEAD, PASSWORD)
        make_campaign(ws)
        files = [(name, io.BytesIO(body)) for name, body in tweet_files(40, 10).items()]
        _REAL["intake"] = steps.start(ws, files, "lead").id
        token = accounts.create_api_token(ws, "lead", "schemathesis")[0]
        app = create_app(ws, ServeOptions(team=True, import_root=home / "imports"), work=False)
        with TestClient(app):
            yield app, token


@pytest.fixture(scope="module")
def schema(served: tuple[FastAPI, str]) -> Any:
    return schemathesis.openapi.from_asgi("/api/openapi.json", served[0])


_REAL = {"campaign": "animals", "item": "t1", "name": "lead", "chart": "metric"}
_CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
_DOCUMENT = create_app(cast(Workspace, None), ServeOptions(team=True), work=False).openapi()
OPERATIONS = [(method.upper(), path) for path, methods in _DOCUMENT["paths"].items() for method in methods]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_no_request_breaks_the_server(method: str, path: str, schema: Any, served: tuple[FastAPI, str]) -> None:
    headers = {"Authorization": f"Bearer {served[1]}"}

    @given(case=schema[path][method].as_strategy(), real=st.booleans())
    @settings(max_examples=25, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    def check(case: Any, real: bool) -> None:
        if path.endswith("/changes"):
            case.query = {**(case.query or {}), "timeout": 0.01}
        if real:  # what is behind the door, too, not only the door
            case.path_parameters = {k: _REAL.get(k, v) for k, v in (case.path_parameters or {}).items()}
        case.call_and_validate(headers=headers, checks=_CHECKS)

    check()


def test_every_route_documents_its_problems(served: tuple[FastAPI, str]) -> None:
    document = served[0].openapi()
    assert len(document["paths"]) > 25
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            answers = operation["responses"]
            assert {"413", "421", "422", "503", "401"} <= set(answers), (path, method)
            assert operation["description"], (path, method)
            for status, answer in answers.items():
                if int(status) >= 400:
                    assert list(answer["content"]) == ["application/problem+json"], (path, method, status)
                    assert "`" in answer["description"], "the codes are named"
    assert "HTTPValidationError" not in document["components"]["schemas"]
    assert document["components"]["schemas"]["Problem"]["required"]


def test_the_document_is_the_same_for_everyone_and_public(ws: Workspace) -> None:
    app = create_app(ws, ServeOptions(team=True), work=False)
    with TestClient(app) as client:
        assert client.get("/api/openapi.json").json()["openapi"].startswith("3.")
