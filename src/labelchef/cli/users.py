"""`labelchef users`: accounts for a team."""

import sys
from typing import Annotated

import typer
from rich.markup import escape

from labelchef.cli.campaigns import HOME, Database, Home, make_console, make_table, workspace
from labelchef.domain.errors import InvalidInputError

users = typer.Typer(help="Accounts: add, list, deactivate, token.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="Name of the account.")]


@users.command()
def add(
    name: Name,
    role: Annotated[str, typer.Option(help="lead or annotator.")] = "annotator",
    campaign: Annotated[list[str] | None, typer.Option(help="A campaign to take part in; may be given again.")] = None,
    home: Home = HOME,
    database: Database = None,
) -> None:
    """Make an account; the password is asked for, or read from standard input."""
    from labelchef.services import campaigns
    from labelchef.services.people import accounts, membership

    with workspace(home, database, make=True) as ws:
        for one in campaign or []:
            campaigns.summary(ws, one)  # an unknown campaign is refused before an account is made
        made = accounts.create_account(ws, name, role, _password())
        for one in campaign or []:
            membership.add_member(ws, one, name)
    make_console().print(f"{escape(made.name)} is {made.role}")


@users.command("list")
def list_users(home: Home = HOME, database: Database = None) -> None:
    """All accounts."""
    from labelchef.services.people import accounts

    with workspace(home, database) as ws:
        found = accounts.list_accounts(ws)
    table = make_table("name", "role", "active", "since")
    for one in found:
        table.add_row(one.name, one.role, "yes" if one.active else "no", f"{one.created_at:%Y-%m-%d}")
    make_console().print(table)


@users.command()
def deactivate(name: Name, home: Home = HOME, database: Database = None) -> None:
    """Deactivate an account; its votes stay."""
    from labelchef.services.people import accounts

    with workspace(home, database) as ws:
        accounts.set_active(ws, name, False)
    make_console().print(f"{escape(name)} cannot sign in any more")


@users.command()
def token(
    name: Name,
    label: Annotated[str, typer.Option(help="What the token is for.")] = "command line",
    home: Home = HOME,
    database: Database = None,
) -> None:
    """Make an API token; it is shown only once."""
    from labelchef.services.people import accounts

    with workspace(home, database) as ws:
        secret, _ = accounts.create_api_token(ws, name, label)
    typer.echo(secret)


def _password() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    first = str(typer.prompt("password", hide_input=True))
    if first != typer.prompt("again", hide_input=True):
        raise InvalidInputError("the two passwords differ; try again", code="password")
    return first
