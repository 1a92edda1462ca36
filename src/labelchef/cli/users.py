"""`labelchef users`: accounts for a team."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from labelchef.cli.options import console, show_table, takes, workspace_options
from labelchef.domain.errors import InvalidInputError

if TYPE_CHECKING:
    from labelchef.services.workspace import Workspace

users = typer.Typer(help="Accounts: add, list, deactivate, token.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="Name of the account.")]


@users.command()
@takes(ws=workspace_options(make=True))
def add(
    name: Name,
    ws: "Workspace",
    role: Annotated[str, typer.Option(help="lead or annotator.")] = "annotator",
    campaign: Annotated[list[str] | None, typer.Option(help="A campaign to take part in; may be given again.")] = None,
) -> None:
    """Make an account; the password is asked for, or read from standard input."""
    from labelchef.services import campaigns
    from labelchef.services.people import accounts

    for one in campaign or []:
        campaigns.summary(ws, one)  # an unknown campaign is refused before an account is made
    made = accounts.create_account(ws, name, role, _password())
    for one in campaign or []:
        accounts.set_member(ws, one, name)
    console.print(f"{made.name} is {made.role}")


@users.command("list")
@takes(ws=workspace_options())
def list_users(ws: "Workspace") -> None:
    """All accounts."""
    from labelchef.services.people import accounts

    found = accounts.list_accounts(ws)
    rows = [(one.name, one.role, "yes" if one.active else "no", f"{one.created_at:%Y-%m-%d}") for one in found]
    show_table(("name", "role", "active", "since"), rows)


@users.command()
@takes(ws=workspace_options())
def deactivate(name: Name, ws: "Workspace") -> None:
    """Deactivate an account; its votes stay."""
    from labelchef.services.people import accounts

    accounts.set_active(ws, name, False)
    console.print(f"{name} cannot sign in any more")


@users.command()
@takes(ws=workspace_options())
def token(
    name: Name, ws: "Workspace", label: Annotated[str, typer.Option(help="What the token is for.")] = "command line"
) -> None:
    """Make an API token; it is shown only once."""
    from labelchef.services.people import accounts

    typer.echo(accounts.create_api_token(ws, name, label)[0])


def _password() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    first = str(typer.prompt("password", hide_input=True))
    if first != typer.prompt("again", hide_input=True):
        raise InvalidInputError("the two passwords differ; try again", code="password")
    return first
