"""Records of what must not change by accident: selections, commands, routes and the exports of a fixed campaign.

Each record stands in `tests/golden/`. A change on purpose is recorded by `python -m tests.test_golden`, and is read in the
difference of these files.
"""

import csv
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
import typer

from labelchef import LabelCleaner
from labelchef.chef.choice import ALL_SELECTORS
from labelchef.chef.constructors import CONSTRUCTORS
from labelchef.cli.main import app as command_line
from labelchef.server.export import take_home
from labelchef.server.web.app import create_app
from labelchef.server.web.options import ServeOptions
from labelchef.server.workspace import Workspace, open_workspace
from tests.store_support import label_all, make

FOLDER = Path(__file__).parent / "golden"
ROUNDS = 3


def problem(C: int) -> tuple[dict[str, Any], Any]:
    """What is given of 150 samples with three sources and 60 trusted samples, and the truth of the 150."""
    rng = np.random.default_rng([12, C])
    y = rng.integers(0, C, 210)
    X = rng.normal(size=(210, 8)) + 1.1 * np.eye(C, 8)[y]
    right = rng.random((210, 3)) < [0.85, 0.7, 0.45]
    votes = np.where(right, y[:, None], (y[:, None] + 1) % C).astype(float)
    votes[rng.random((210, 3)) < 0.3] = np.nan
    frame = pd.DataFrame(votes).add_prefix("source")
    given = {"X": X[:150], "votes": frame[:150], "X_val": X[150:], "y_val": y[150:], "votes_val": frame[150:]}
    return given, y[:150]


def selected(C: int, **chosen: Any) -> list[list[int]]:
    """The samples of each round."""
    given, y = problem(C)
    if chosen.get("preset") == "paper":
        given = {
            "X": given["X"],
            "Y_weak": weak_of(given["votes"], C),
            "X_val": given["X_val"],
            "y_val": given["y_val"],
        }
    cleaner = LabelCleaner(budget=6 * ROUNDS, batch_size=6, random_state=0, **chosen).fit(**given)
    rounds = []
    for _ in range(ROUNDS):
        batch = cleaner.query()
        rounds.append(batch.indices.tolist())
        cleaner.update(batch.indices, y[batch.indices])
    return rounds


def weak_of(votes: pd.DataFrame, C: int) -> Any:
    """Shares of the votes, smoothed."""
    counts = np.stack([(votes == c).sum(axis=1) for c in range(C)], axis=1) + 0.5
    return counts / counts.sum(axis=1, keepdims=True)


def selections() -> dict[str, list[list[int]]]:
    """The default, the paper's pipeline with each constructor, and each selector, on two and three classes."""
    found = {f"{C} classes, default": selected(C) for C in (2, 3)}
    for name in CONSTRUCTORS:
        found |= {f"{C} classes, paper, {name}": selected(C, preset="paper", constructor=name) for C in (2, 3)}
    for name in sorted(ALL_SELECTORS):
        found[f"2 classes, paper, {name}"] = selected(2, preset="paper", selector=name)
    return found


def commands() -> list[str]:
    """A line for each command: its name, its arguments and its options."""

    def lines(command: Any, name: str) -> list[str]:
        inner = getattr(command, "commands", {})
        if inner:
            return [line for key in sorted(inner) for line in lines(inner[key], f"{name} {key}".strip())]
        shown = sorted(
            "|".join([*part.opts, *part.secondary_opts]) if part.param_type_name == "option" else str(part.name).upper()
            for part in command.params
        )
        return [f"{name}: {' '.join(shown)}"]

    return lines(typer.main.get_command(command_line), "")


def routes() -> list[str]:
    """A line for each operation of the API: its parameters, the fields of its body and the statuses of its answers."""
    document = create_app(cast(Workspace, None), ServeOptions(team=True), work=False).openapi()
    schemas, found = document["components"]["schemas"], []

    def fields(schema: dict[str, Any]) -> list[str]:
        if "$ref" in schema:
            schema = schemas[schema["$ref"].rsplit("/", 1)[1]]
        return sorted(schema.get("properties", {}))

    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            asked = sorted(one["name"] for one in operation.get("parameters", []) if one["in"] != "header")
            content = operation.get("requestBody", {}).get("content", {})
            body = [f"{kind.rsplit('/', 1)[1]}{fields(one['schema'])}" for kind, one in content.items()]
            answers = []
            for status, answer in sorted(operation["responses"].items()):
                kinds = [fields(one.get("schema", {})) for one in answer.get("content", {}).values() if status < "300"]
                answers.append(status + "".join(str(kind) for kind in kinds if kind))
            found.append(f"{method.upper()} {path} {asked} {' '.join(body)} -> {' '.join(answers)}")
    return [line.replace("'", "") for line in sorted(found)]


def dataset() -> list[list[str]]:
    """The data set of a campaign of 60 texts after two batches that two people answered."""
    with tempfile.TemporaryDirectory() as folder, open_workspace(Path(folder) / "home") as ws:
        campaign = make(ws)
        label_all(ws, campaign, "ann", "bob", rounds=2)
        take_home.export_dataset(ws, campaign, Path(folder) / "dataset.csv")
        with (Path(folder) / "dataset.csv").open(encoding="utf-8", newline="") as file:
            return list(csv.reader(file))


def test_selections() -> None:
    assert selections() == json.loads((FOLDER / "selections.json").read_text())


@pytest.mark.parametrize("record", [commands, routes])
def test_commands_and_routes(record: Callable[[], list[str]]) -> None:
    assert record() == (FOLDER / f"{record.__name__}.txt").read_text().splitlines()


def test_the_data_set_of_a_campaign() -> None:
    with (FOLDER / "dataset.csv").open(encoding="utf-8", newline="") as file:
        expected = list(csv.reader(file))
    found = dataset()
    assert found[0] == expected[0]
    for row, other in zip(found[1:], expected[1:], strict=True):
        for name, value, before in zip(found[0], row, other, strict=True):
            try:
                assert abs(float(value) - float(before)) < 2e-3, (row[0], name)  # a model is right within its tolerance
            except ValueError:
                assert value == before, (row[0], name)


def main() -> None:
    """Write the records anew."""
    FOLDER.mkdir(exist_ok=True)
    found = ",\n".join(f" {json.dumps(key)}: {json.dumps(rounds)}" for key, rounds in selections().items())
    (FOLDER / "selections.json").write_text(f"{{\n{found}\n}}\n")
    for record in (commands, routes):
        (FOLDER / f"{record.__name__}.txt").write_text("\n".join(record()) + "\n")
    with (FOLDER / "dataset.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(dataset())


if __name__ == "__main__":
    main()
