"""The commands of the guides run as they are written, on small data of the kind that each guide is about."""

import importlib.util
import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

from tests.commands import PRETRAINED, Commands

ROOT = Path(__file__).parent.parent
ENDLESS = ("labelchef serve",)
"""Commands that a test cannot wait for; the tests of the page start servers."""


def commands(page: Path) -> list[list[str]]:
    """What stands behind a `$` in the console blocks of a page."""
    blocks = re.findall(r"```console\n(.*?)```", page.read_text(), re.S)
    lines = [line[2:] for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.startswith("$ ")]
    return [
        shlex.split(line, comments=True)
        for line in lines
        if line.startswith("labelchef ") and not line.startswith(ENDLESS)
    ]


def texts(n: int, seed: int) -> tuple[list[str], list[str]]:
    """Short texts of three moods, and their labels."""
    rng = np.random.default_rng(seed)
    moods = {
        "negative": ["late", "delayed", "cancelled", "angry", "lost", "bag", "worst", "rude", "wait", "nobody"],
        "neutral": ["flight", "gate", "ticket", "question", "number", "schedule", "seat", "info", "today", "when"],
        "positive": ["thanks", "great", "friendly", "quick", "best", "love", "crew", "smooth", "helpful", "nice"],
    }
    common = ["the", "we", "to", "you", "our", "is", "was", "on", "at", "my"]
    labels = rng.choice(list(moods), n).tolist()
    said = [" ".join([*rng.choice(moods[c], 4), *rng.choice(common, 5)]) for c in labels]
    return said, labels


def noisy(labels: list[str], right: float, spoken: float, rng: np.random.Generator) -> list[str | None]:
    names = sorted(set(labels))
    return [
        None if rng.random() > spoken else label if rng.random() < right else str(rng.choice(names)) for label in labels
    ]


def long_votes(ids: list[str], labels: list[str], item: str, source: str, J: int, spoken: float) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    parts = []
    for j in range(J):
        said = noisy(labels, 0.5 + 0.4 * rng.random(), spoken, rng)
        parts.append(pd.DataFrame({item: ids, source: f"s{j}", "label": said}).dropna())
    return pd.concat(parts).sample(frac=1, random_state=1)


def text_files(folder: Path, name: str = "tweets", J: int = 4, spoken: float = 0.6, worker: bool = False) -> None:
    said, labels = texts(220, 0)
    ids = [f"{k:04}" for k in range(220)]
    frame = pd.DataFrame({"id": ids, "text": said})
    frame.sample(frac=1, random_state=3).to_csv(folder / f"{name}.csv", index=False)
    columns = ("task", "worker") if worker else ("item", "source")
    long_votes(ids, labels, *columns, J, spoken).to_csv(folder / "votes.csv", index=False)
    pd.DataFrame({"id": ids[:45], "label": labels[:45]}).to_csv(folder / "gold.csv", index=False)
    more, _ = texts(10, 1)
    pd.DataFrame({"id": [f"n{k}" for k in range(10)], "text": more}).to_csv(folder / "new.csv", index=False)


def text_guide(folder: Path) -> None:
    text_files(folder)


def crowd_guide(folder: Path) -> None:
    text_files(folder, "reviews", J=25, spoken=0.15, worker=True)


def image_guide(folder: Path) -> None:
    from PIL import Image

    digits = load_digits()
    chosen = np.flatnonzero(np.isin(digits.target, (0, 1, 4)))[:160]
    names = {0: "ring", 1: "line", 4: "chair"}
    rows = []
    for k in chosen.tolist():
        path = Path("photos") / f"b{k % 3}" / f"{k:04}.png"
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        pixels = (digits.images[k] * 15).astype(np.uint8)
        Image.fromarray(pixels).resize((32, 32)).save(folder / path)
        rows.append((path.relative_to("photos").as_posix(), names[int(digits.target[k])]))
    (folder / "new_photos").mkdir()
    for k in chosen[:5].tolist():
        Image.fromarray((digits.images[k] * 15).astype(np.uint8)).save(folder / "new_photos" / f"{k}.png")
    ids, labels = [list(one) for one in zip(*rows, strict=True)]
    pd.DataFrame({"id": ids[:40], "label": labels[:40]}).to_csv(folder / "gold.csv", index=False)
    said = noisy(labels, 0.6, 0.9, np.random.default_rng(2))
    pd.DataFrame({"id": ids, "guess": said}).to_csv(folder / "guesses.csv", index=False)


def table_guide(folder: Path) -> None:
    rng = np.random.default_rng(4)
    amount = rng.integers(500, 20_000, 200)
    purpose = rng.choice(["car", "house", "travel"], 200)
    late = amount + 4000 * (purpose == "travel") + rng.normal(0, 2000, 200) > 11_000
    opened = pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(0, 400, 200), unit="D")
    frame = pd.DataFrame({"id": [f"L{k:05}" for k in range(200)], "amount": amount, "purpose": purpose})
    frame["opened"] = opened.strftime("%Y-%m-%d")
    frame.to_csv(folder / "loans.csv", index=False)
    labels = np.where(late, "late", "paid")
    pd.DataFrame({"id": frame["id"][:50], "label": labels[:50]}).to_csv(folder / "gold.csv", index=False)
    frame[:7].to_csv(folder / "new.csv", index=False)


GUIDES: dict[str, Callable[[Path], None]] = {
    "text.md": text_guide,
    "images.md": image_guide,
    "tables.md": table_guide,
    "crowds.md": crowd_guide,
}


@pytest.fixture(scope="module")
def run() -> Iterator[Commands]:
    """Commands with the encoders that are usual, whose libraries are imported once."""
    made = Commands([name for name in PRETRAINED if importlib.util.find_spec(name) is not None])
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", GUIDES)
def test_the_commands_of_a_guide(name: str, tmp_path: Path, run: Commands) -> None:
    page = ROOT / "docs" / name
    GUIDES[name](tmp_path)
    blocks = re.findall(r"```toml\n(.*?)```", page.read_text(), re.S)
    if blocks:
        (tmp_path / "rules.toml").write_text("".join(blocks))
    wanted = commands(page)
    assert len(wanted) >= 3
    for command in wanted:
        done = run.run(*command[1:], cwd=tmp_path)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    for file in tmp_path.glob("dataset.*"):
        frame = pd.read_excel(file, engine="openpyxl") if file.suffix == ".xlsx" else pd.read_csv(file, dtype=str)
        assert frame["label"].notna().all()
    predicted = tmp_path / "predictions.csv"
    if any("predict" in command for command in wanted):
        assert set(pd.read_csv(predicted, dtype=str)["label"]) <= set(pd.read_csv(tmp_path / "gold.csv")["label"])


def test_the_readme_shows_the_commands_of_the_text_guide() -> None:
    short = {json.dumps(command) for command in commands(ROOT / "README.md") if command[1] in ("init", "predict")}
    assert short <= {json.dumps(command) for command in commands(ROOT / "docs" / "text.md")}
