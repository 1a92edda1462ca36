"""`labelchef campaign …`: care of the campaigns in a workspace."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labelchef.base.campaigns import CampaignSummary, Shelf
from labelchef.base.errors import InvalidInputError
from labelchef.base.settings import OPTIONS
from labelchef.cli.options import console, plain_table, takes, workspace_options
from labelchef.cli.workspace import AsJson, Campaign, Person, move_on, who_is

if TYPE_CHECKING:
    from labelchef.server.workspace import Workspace

_HELP = "Care of campaigns: list, rename, archive, unarchive, delete, restore, copy; their sources; the key of their ledgers."
_DELETED = Annotated[str, typer.Argument(help="A deleted campaign; `labelchef campaign list --deleted` lists them.")]
_GRACE = "Days in which it can be restored."
campaign_commands = typer.Typer(help=_HELP, no_args_is_help=True)
_CONFIRM = "The campaign's name in full; it is asked for if left out."
_RULES = "Rules file that should take the place of the campaign's rules."
_SET = "SETTING=VALUE: another value than in the campaign that is copied; repeatable."


@campaign_commands.command("list")
@takes(ws=workspace_options())
def list_campaigns(
    ws: "Workspace",
    deleted: Annotated[bool, typer.Option("--deleted", help="Those that can be restored.")] = False,
    archived: Annotated[bool, typer.Option("--archived", help="Those in the archive.")] = False,
    as_json: AsJson = False,
) -> None:
    """List campaigns: those in use, in the archive, or deleted."""
    from labelchef.server.campaigns import campaigns as service

    if deleted and archived:
        raise InvalidInputError("--deleted and --archived together; give one of them", code="shelf")
    shelf = Shelf.DELETED if deleted else Shelf.ARCHIVED if archived else Shelf.OPEN
    found = service.list_campaigns(ws, shelf=shelf)
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found], indent=2, ensure_ascii=False, default=str))
        return
    if not found:
        console.print(
            {Shelf.DELETED: "nothing is deleted", Shelf.ARCHIVED: "the archive is empty"}.get(shelf, "no campaign")
        )
        return
    rows = [(one.slug, one.name, one.state, one.spent, one.budget or "∞", _until(one)) for one in found]
    console.print(plain_table(("campaign", "name", "state", "asked", "of", "until" if deleted else ""), rows))


@campaign_commands.command()
@takes(ws=workspace_options())
def rename(
    campaign: Campaign,
    name: Annotated[str, typer.Argument(help="The new name.")],
    ws: "Workspace",
    slug: Annotated[str | None, typer.Option(help="A new short name too; the old one still works.")] = None,
    person: Person = None,
) -> None:
    """Give a campaign another name."""
    from labelchef.server.campaigns import care

    made = care.rename(ws, campaign, who_is(person), name, slug=slug)
    console.print(f"{made.slug} is called {made.name!r} now")


@campaign_commands.command()
@takes(ws=workspace_options())
def archive(campaign: Campaign, ws: "Workspace", person: Person = None) -> None:
    """Put a campaign away: hidden from lists, read-only, no work for the server."""
    from labelchef.server.campaigns import care

    console.print(
        f"{care.archive(ws, campaign, who_is(person)).slug} is in the archive; `labelchef campaign unarchive` reopens it"
    )


@campaign_commands.command()
@takes(ws=workspace_options())
def unarchive(campaign: Campaign, ws: "Workspace", person: Person = None) -> None:
    """Take a campaign out of the archive."""
    from labelchef.server.campaigns import care

    console.print(f"{care.reopen(ws, campaign, who_is(person)).slug} is open again")
    move_on(ws, campaign)


@campaign_commands.command()
@takes(ws=workspace_options())
def delete(
    campaign: Campaign,
    ws: "Workspace",
    confirm: Annotated[str | None, typer.Option(help=_CONFIRM)] = None,
    grace_days: Annotated[float, typer.Option(min=0, max=36500, help=_GRACE)] = 30.0,
    now: Annotated[bool, typer.Option("--now", help="Remove it at once and for good, with all votes.")] = False,
    person: Person = None,
) -> None:
    """Delete a campaign; it can be restored for 30 days unless you say otherwise."""
    from labelchef.server.campaigns import campaigns, care

    found = campaigns.summary(ws, campaign)
    if confirm is None:
        if not sys.stdin.isatty():
            raise InvalidInputError(f"type the name to delete it: --confirm {found.name!r}", code="confirm")
        confirm = str(typer.prompt(f"type the name of the campaign to delete it ({found.name})"))
    made = care.delete(ws, campaign, who_is(person), confirm=confirm, grace_days=grace_days, now=now)
    if not now:
        console.print(
            f"{made.name!r} is deleted; `labelchef campaign restore {made.slug}` brings it back until {_until(made)}"
        )
        return
    if made.name in care.purge(ws):
        console.print(f"{made.name!r} is removed for good")
    else:
        console.print(f"{made.name!r} is deleted; the worker that has it at hand removes it within a minute")


@campaign_commands.command()
@takes(ws=workspace_options())
def restore(
    campaign: _DELETED,
    ws: "Workspace",
    name: Annotated[str | None, typer.Option(help="Another name, if its own is taken now.")] = None,
    person: Person = None,
) -> None:
    """Take the deletion of a campaign back."""
    from labelchef.server.campaigns import care

    made = care.restore(ws, campaign, who_is(person), name=name)
    console.print(f"{made.name!r} ({made.slug}) is back")


@campaign_commands.command()
@takes(ws=workspace_options())
def copy(
    campaign: Campaign,
    ws: "Workspace",
    name: Annotated[str | None, typer.Option(help="Name of the copy; the default is the next free one.")] = None,
    change: Annotated[list[str] | None, typer.Option("--set", help=_SET)] = None,
    answers: Annotated[bool, typer.Option("--answers", help="What was decided goes along as known labels.")] = False,
    person: Person = None,
) -> None:
    """Make a new campaign of the same data, with other settings."""
    from labelchef.server.campaigns import care

    made = care.copy(ws, campaign, who_is(person), name=name, changes=_changes(change or []), answers=answers)
    console.print(f"{made.name!r} ({made.slug}): {made.n_items} items")
    move_on(ws, made.slug)


@campaign_commands.command()
@takes(ws=workspace_options())
def sources(
    campaign: Campaign,
    ws: "Workspace",
    mute: Annotated[
        list[str] | None, typer.Option(help="A source whose votes should not be used; once for each.")
    ] = None,
    unmute: Annotated[list[str] | None, typer.Option(help="A muted source that should be heard again.")] = None,
    rules: Annotated[Path | None, typer.Option(help=_RULES)] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Use the other sources, from the next model on.")] = False,
    person: Person = None,
) -> None:
    """Show the effect of other sources: the model is really made. With --apply, use them."""
    from labelchef.believe.rules import read_rules, rule_values
    from labelchef.cli.progress import show_effect
    from labelchef.server.campaigns import campaigns
    from labelchef.server.sources import source_effects
    from labelchef.server.sources.campaign_rules import kept_of

    if not (mute or unmute or rules is not None):
        told = f"expected --mute, --unmute or --rules; `labelchef status {campaign} --sources` shows what is known of each source"
        raise InvalidInputError(told, code="sources")
    muted = [one for one in campaigns.settings(ws, campaign).muted if one not in (unmute or [])]
    wanted = tuple(dict.fromkeys([*muted, *(mute or [])]))
    values = None if rules is None else tuple(map(rule_values, kept_of(read_rules(rules), ()).rules))
    proposal = source_effects.Proposal(wanted, values)
    show_effect(source_effects.computed(ws, campaign, proposal))
    if not apply:
        console.print("nothing was changed; with --apply it holds from the next model on", style="dim")
        return
    version = source_effects.apply(ws, campaign, proposal, who_is(person))
    console.print(f"muted: {', '.join(wanted) or 'none'}; rules: version {version}. It holds from the next model on")


@campaign_commands.command()
@takes(ws=workspace_options())
def key(
    ws: "Workspace",
    new: Annotated[bool, typer.Option("--new", help="Make another key, in place of one that is lost.")] = False,
) -> None:
    """Print the public key of the workspace, by which `labelchef verify` knows its ledgers, and its fingerprint."""
    from labelchef.server.keys import new_key, told_key

    if new:
        new_key(ws)
    public, fingerprint = told_key(ws)
    typer.echo(public)
    typer.echo(f"fingerprint {fingerprint}")


def _changes(given: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in given:
        name, equals, text = one.partition("=")
        option = OPTIONS.get(name.replace("-", "_"))
        if not equals or option is None:
            why = f"--set is {one!r}; expected SETTING=VALUE with one of: {', '.join(OPTIONS)}"
            raise InvalidInputError(why, code="settings")
        value: Any = text
        if option.none and text in ("", "none"):
            value = None
        elif option.kind is bool:
            value = {"true": True, "false": False, "yes": True, "no": False}.get(text.lower(), text)
        elif option.kind is not str and text != "auto":
            try:
                value = option.kind(text)
            except ValueError:
                value = text  # refused by the setting, with what it expects
        found[name.replace("-", "_")] = value
    return found


def _until(one: CampaignSummary) -> str:
    return "" if one.purge_at is None else f"{one.purge_at:%Y-%m-%d %H:%M} UTC"
