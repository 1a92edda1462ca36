"""Files on their way to a campaign: upload, look, correct, create."""

from typing import IO, Annotated

from fastapi import File, Path, Query, Response, UploadFile
from fastapi.responses import PlainTextResponse

from labelchef.base.campaigns import Page
from labelchef.base.intake import Intake, WaitingFiles
from labelchef.base.settings import Settings
from labelchef.believe.rules import RuleSetFacts
from labelchef.server.intake import rules, steps
from labelchef.server.intake.rules import Suggestion
from labelchef.server.web.forms import CorrectionForm, CreateForm, IntakeFolderForm, RulesForm, UsefulForm
from labelchef.server.web.images import SAFE_TYPES, image_response
from labelchef.server.web.paging import Cursor, Limit, part_of
from labelchef.server.web.policies import BUSY_RULES, GUIDELINES, NAME_TAKEN, SETTINGS, Api, Gone, Lead, Options, Store
from labelchef.server.web.problems import Case
from labelchef.server.web.uploads import UploadRoute, told_as_store_errors

routes = Api("intakes", "/intakes")
IntakePath = Annotated[str, Path(description="Id of the intake.", max_length=200)]
Files = Annotated[list[UploadFile], File(description="The files; a name may hold folders, as 'photos/cat/1.png'.")]
_NO_INTAKE: Case = (404, "intake", "no such intake: it was deleted, or is too old")
_STATE: Case = (409, "intake_state", "the campaign is made or being made, or the files are a folder of the server")
_TOO_MANY: Case = (409, "intakes", "too many uploads wait to be made into campaigns")
_FILE: Case = (422, "file", "a file or column is not there, or its name cannot be used")
_SAME: Case = (422, "same_name", "two files of one upload have the same name")
_EXISTS: Case = (409, "file_exists", "a file of this name is there already; `replace=true` replaces it")
_CODE: Case = (422, "code", "a file holds code, which is never run here; the detail names the command that takes it")


_NOT_READ: Case = (409, "not_ready", "the files are not read just now")
_RULE: tuple[Case, ...] = (
    (422, "rule", "a rule lacks something, or votes for a class that is not there"),
    (422, "rules", "two rules of one name, or too many"),
    (422, "rule_pattern", "a pattern that is no regular expression, or cannot be searched in bounded time"),
    (422, "rule_time", "a pattern that takes too long"),
)


_SUGGESTION: tuple[Case, ...] = (
    (422, "file", "no such column of text"),
    (422, "no_rules", "no word is in enough rows, or all rules are answered"),
    (422, "classes", "fewer than two classes"),
)


@routes.get("")
def list_intakes(_: Lead, ws: Store, after: Cursor = None, limit: Limit = 50) -> Page[WaitingFiles]:
    """Files that are no campaign yet, newest first. They are deleted when nobody has touched them for two weeks."""
    found = steps.list_intakes(ws)
    return part_of(found, lambda one: (one.created_at.timestamp(), one.id), after, limit, falling=True)


@routes.post("", _FILE, _SAME, _CODE, _TOO_MANY, status_code=201, route_class_override=UploadRoute)
def start(files: Files, who: Lead, ws: Store) -> Intake:
    """Upload the files of a campaign, all formats, zip archives too. What each is used for is detected; `state` says when."""
    with told_as_store_errors():
        return steps.start(ws, _named(files), who.name)


@routes.post(
    "/from-folder",
    _FILE,
    _TOO_MANY,
    (403, "folder", "folders outside of the import root are not read"),
    status_code=201,
)
def start_from_folder(form: IntakeFolderForm, who: Lead, ws: Store, options: Options) -> Intake:
    """Read a folder of the server instead of uploaded files."""
    folder = options.folder_to_read(form.folder)
    return steps.start_from_folder(ws, folder, who.name)


@routes.get("/{intake}", _NO_INTAKE)
def look(intake: IntakePath, _: Lead, ws: Store) -> Intake:
    """How the files are used, the first joined rows, what was found, and how far the work is."""
    return steps.look(ws, intake)


@routes.post("/{intake}/files", _NO_INTAKE, _STATE, _FILE, _SAME, _EXISTS, _CODE, route_class_override=UploadRoute)
def add(
    intake: IntakePath,
    files: Files,
    _: Lead,
    ws: Store,
    replace: Annotated[bool, Query(description="Whether a file replaces one of the same name.")] = False,
) -> Intake:
    """Upload more files; one with the name of another replaces it only if `replace` says so."""
    with told_as_store_errors():
        return steps.add(ws, intake, _named(files), replace=replace)


@routes.patch("/{intake}", _NO_INTAKE, _STATE, _FILE, _CODE)
def correct(intake: IntakePath, form: CorrectionForm, _: Lead, ws: Store) -> Intake:
    """Use files and columns in another way; what is left out stays as it is. The files are read again."""
    return steps.correct(ws, intake, form.correction())


@routes.post("/{intake}/rules", _NO_INTAKE, _NOT_READ, *_RULE, BUSY_RULES)
def try_rules(intake: IntakePath, form: RulesForm, _: Lead, ws: Store, gone: Gone) -> RuleSetFacts:
    """Try rules without code while they are typed: where they vote, how often they are right, where they differ."""
    return rules.try_rules(ws, intake, form.values(), gone)


@routes.put("/{intake}/rules", _NO_INTAKE, _STATE, _NOT_READ, *_RULE)
def keep_rules(intake: IntakePath, form: RulesForm, _: Lead, ws: Store) -> Intake:
    """Use these rules, in place of those before: each is a source."""
    return steps.keep_rules(ws, intake, form.values())


@routes.get(
    "/{intake}/rules.toml",
    _NO_INTAKE,
    response_class=PlainTextResponse,
    responses={200: {"description": "The file.", "content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def rules_file(intake: IntakePath, _: Lead, ws: Store) -> Response:
    """The rules of the page as a file, for `labelchef init … --rules`."""
    headers = {"Content-Disposition": 'attachment; filename="rules.toml"'}
    return PlainTextResponse(rules.rules_file(ws, intake), headers=headers)


@routes.get("/{intake}/suggestion", _NO_INTAKE, _NOT_READ, *_SUGGESTION)
def suggestion(
    intake: IntakePath,
    _: Lead,
    ws: Store,
    column: Annotated[str, Query(description="A column of text.", max_length=500)],
) -> Suggestion:
    """A rule that may be useful: a word and a class. The first answer takes seconds."""
    return rules.suggest(ws, intake, column)


@routes.post("/{intake}/suggestion", _NO_INTAKE, _NOT_READ, (422, "unknown_rule", "no such rule"), *_SUGGESTION)
def answer_suggestion(intake: IntakePath, form: UsefulForm, _: Lead, ws: Store) -> Suggestion:
    """Say whether the rule is useful, and get the next one. A useful rule is added by `PUT …/rules`."""
    return rules.answer(ws, intake, form.column, form.word, form.label, form.useful)


@routes.post(
    "/{intake}/create",
    _NO_INTAKE,
    _STATE,
    (409, "not_ready", "the files are not read yet, or something in them must be mended first"),
    GUIDELINES,
    NAME_TAKEN,
    (422, "name", "a name with characters that cannot be printed"),
    *SETTINGS,
    status_code=202,
)
def create(intake: IntakePath, form: CreateForm, who: Lead, ws: Store) -> Intake:
    """Make the campaign, in the background: encoding may take minutes. `campaign` is its slug once `state` is 'made'."""
    settings = Settings.of(form.settings.given())
    return steps.create(ws, intake, form.name, settings, who.name, encoders=form.encoders, guidelines=form.guidelines)


@routes.delete("/{intake}", _NO_INTAKE, status_code=204)
def delete(intake: IntakePath, _: Lead, ws: Store) -> None:
    """Delete the uploaded files."""
    steps.delete(ws, intake)


@routes.get(
    "/{intake}/image",
    _NO_INTAKE,
    (404, "image", "no such image in the preview"),
    (415, "image", "not an image of a supported type"),
    response_class=Response,
    responses={200: {"description": "The image.", "content": {kind: {} for kind in SAFE_TYPES.values()}}},
)
def image(
    intake: IntakePath,
    _: Lead,
    ws: Store,
    path: Annotated[str, Query(description="The image as the preview names it.", max_length=1000)],
) -> Response:
    """An image of the preview."""
    return image_response(steps.image(ws, intake, path), f"{path!r}")


def _named(files: list[UploadFile]) -> list[tuple[str, IO[bytes]]]:
    return [(one.filename or "", one.file) for one in files]
