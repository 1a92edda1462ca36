"""Files as people have them, in every kind of content, of knowledge and of trusted rows: what the first paths begin with.

content   texts · images (a folder) · table · embeddings (a file with ids) · arrays (.npy, no ids)
known     nothing · votes on the rows to label only · on trusted rows too · on some of these · one source · labels that may be
          wrong · an LLM's JSON lines with confidences · a crowd's table, several votes an item · probabilities
trusted   part of the data (ids with labels) · rows of their own · none
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

CONTENTS = ("texts", "images", "table", "embeddings", "arrays")
KNOWN = ("nothing", "votes on rows", "votes on all", "votes on some", "one", "labels", "llm", "crowd", "soft")
TRUSTED = ("part", "own", "none")
CLASSES = ("bad", "good")
GOOD = ("lovely", "great", "thanks", "happy", "smooth", "friendly")
BAD = ("delayed", "lost", "rude", "awful", "cancelled", "waiting")
N, GOLD, NEW = 48, 24, 5
Votes = list[tuple[str, str, str]]


@dataclass
class World:
    """Files in a folder, what a person says of them, and the truth."""

    content: str
    known: str
    trusted: str
    folder: Path
    pool: list[str]
    """Ids of the rows to label."""
    gold: list[str]
    """Ids of the trusted rows."""
    new_ids: list[str]
    truth: dict[str, str]
    init: list[object] = field(default_factory=list)
    """What is typed behind `labelchef init NAME`."""
    new: Path | None = None
    """Rows to predict; None where the model takes bare features."""
    features: Mapping[str, Any] = field(default_factory=dict)
    """Id → content, as Python has it."""
    classes: tuple[str, ...] = CLASSES
    to: Mapping[str, str] = field(default_factory=dict)
    """Id in the files → id on the page, where they differ."""

    @property
    def sources(self) -> int:
        """How many sources the files have."""
        return 1 if self.known == "soft" else len({source for _, source, _ in votes_of(self)})

    @property
    def trusted_labels(self) -> dict[str, str]:
        """Id → label of the trusted rows."""
        return {key: self.truth[key] for key in self.gold}

    @property
    def new_rows(self) -> "np.ndarray[Any, Any]":
        """Features of the new rows."""
        return np.stack([self.features[key] for key in self.new_ids])

    def dropped(self) -> "World":
        """The same, with the ids that the page gives: of several folders of images, paths that begin with the folder."""
        if self.content != "images" or self.trusted != "own":
            return self
        to = {key: f"photos/{key}" for key in self.pool} | {key: f"gold/{key}" for key in self.gold}
        truth = self.truth | {to[key]: self.truth[key] for key in to}
        return replace(
            self, pool=[to[key] for key in self.pool], gold=[to[key] for key in self.gold], truth=truth, to=to
        )

    def uploads(self) -> dict[str, bytes]:
        """What is dropped on the page: every file but the new rows."""
        named = {path.relative_to(self.folder).as_posix(): path for path in sorted(self.folder.rglob("*.*"))}
        return {name: path.read_bytes() for name, path in named.items() if not name.startswith("new")}

    def correction(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """What a lead says on the page beside the files: the classes, and which labels may be wrong."""
        said: dict[str, Any] = {}
        if self.trusted == "none":
            said["classes"] = list(self.classes)
        if self.content == "arrays":
            said["by_position"] = True
        column = "folder" if self.content == "images" else "label"
        if self.known == "labels":
            items = [one["path"] for one in found["files"] if column in one["columns"] and one["role"] == "items"]
            said["files"] = [{"path": path, "columns": {column: "source"}} for path in items]
        return said

    def python(self) -> dict[str, Any]:
        """What is handed to `fit`."""

        def rows(ids: list[str]) -> Any:
            values = [self.features[key] for key in ids]
            if self.content == "table":
                return pd.DataFrame(values)
            return values if self.content in ("texts", "images") else np.stack(values)

        given: dict[str, Any] = {"X": rows(self.pool)}
        if self.gold:
            given |= {"X_val": rows(self.gold), "y_val": [self.truth[key] for key in self.gold]}
        if self.known == "nothing" or self.trusted == "none":
            given["classes"] = list(self.classes)
        said = votes_of(self)
        if self.known == "soft":
            given["Y_weak"] = soft_of(self).drop(columns="id").iloc[: len(self.pool)]
        elif self.known == "crowd":
            given["votes"] = long_of(said, self.pool)
        elif self.known == "llm":
            given["votes"] = long_of(said, self.pool).assign(probability=0.9)
        elif said:
            given["votes"] = wide_of(said, self.pool).drop(columns="id")
            if self.known in ("votes on all", "votes on some") and self.gold:
                given["votes_val"] = wide_of(said, self.gold).drop(columns="id")
        return given


def world(content: str, known: str, trusted: str, folder: Path) -> World:
    """The files of a cell, written to a new folder."""
    rng = np.random.default_rng([CONTENTS.index(content), KNOWN.index(known), TRUSTED.index(trusted)])
    place = folder / "files"
    place.mkdir(parents=True)
    labels = rng.permutation(np.resize(CLASSES, N + GOLD + NEW)).tolist()
    names = [_id(content, k, labels[k], trusted) for k in range(N + GOLD + NEW)]
    split = {"part": (N, N + GOLD), "own": (N, N + GOLD), "none": (N + GOLD, N + GOLD)}[trusted]
    made = World(
        content, known, trusted, place, names[: split[0]], names[split[0] : split[1]], names[N + GOLD :],
        dict(zip(names, labels, strict=True)),
    )  # fmt: skip
    made.features = {key: _content(content, made.truth[key], k, rng) for k, key in enumerate(names)}
    {"images": _images, "arrays": _arrays}.get(content, _tables)(made)
    return made


def _id(content: str, k: int, label: str, trusted: str) -> str:
    if content == "arrays":
        return str(k)
    if content == "images":
        own = trusted == "own" and N <= k < N + GOLD
        return f"{label}/g{k:03}.png" if own else f"p{k:03}.png"
    return f"{k:04}"


def _content(content: str, label: str, k: int, rng: np.random.Generator) -> Any:
    good = label == "good"
    if content == "texts":
        words = rng.choice(GOOD if good else BAD, 2)
        seat = f"{rng.integers(10**6):06} {rng.integers(10**6):06} {rng.integers(10**6):06}"
        return f"Ticket {seat}: the flight was {words[0]} and the crew was {words[1]}"
    if content == "images":
        pixels = np.full((12, 12, 3), rng.integers(150, 250) if good else rng.integers(5, 100), dtype=np.uint8)
        pixels[0, 0] = k  # no two are alike
        return pixels
    if content == "table":
        amount = round(float(rng.normal(60 if good else 40, 8)), 2)
        return {"amount": amount, "age": int(rng.integers(18, 80)), "purpose": str(rng.choice(("car", "house")))}
    return (rng.normal(size=6) + (1.2 if good else -1.2)).astype(np.float32)


# what sources say


def votes_of(made: World) -> Votes:
    """(item, source, label) of sources that are right four times in five; wrong ones among the trusted rows as well."""
    rng = np.random.default_rng(7)
    rows = [*made.pool, *made.gold] if made.known in ("votes on all", "llm", "crowd") else [*made.pool]
    rows += made.gold[::2] if made.known == "votes on some" else []
    sources = {"nothing": 0, "one": 1, "labels": 1, "llm": 1, "crowd": 6, "soft": 0}.get(made.known, 3)
    found = []
    for key in rows:
        for j in range(sources):
            if made.known == "crowd" and rng.random() < 0.5:
                continue
            right = rng.random() < 0.8
            found.append((key, f"lf_{j}", made.truth[key] if right else _other(made.truth[key])))
    return found


def _other(label: str) -> str:
    return CLASSES[1 - CLASSES.index(label)]


def wide_of(votes: Votes, ids: list[str]) -> pd.DataFrame:
    """A column a source; empty where it says nothing."""
    frame = pd.DataFrame({"id": ids})
    for source in sorted({one for _, one, _ in votes}):
        said = {key: label for key, name, label in votes if name == source}
        frame[source] = [said.get(key) for key in ids]
    return frame


def long_of(votes: Votes, ids: list[str]) -> pd.DataFrame:
    """A row a vote; items by their position."""
    place = {key: k for k, key in enumerate(ids)}
    rows = [(place[key], source, label) for key, source, label in votes if key in place]
    return pd.DataFrame(rows, columns=["item", "source", "label"])


def likely_of(made: World) -> dict[str, str]:
    """Id → the class that the probabilities favour."""
    frame = soft_of(made).set_index("id")
    return {str(key): str(label) for key, label in frame.idxmax(axis=1).items()}


def soft_of(made: World) -> pd.DataFrame:
    """Probabilities of the classes, right four times in five."""
    rng = np.random.default_rng(8)
    ids = [*made.pool, *made.gold]
    p = np.array([0.8 if (made.truth[key] == "good") == (rng.random() < 0.8) else 0.2 for key in ids])
    return pd.DataFrame({"id": ids, "bad": 1 - p, "good": p})


def _knowledge(made: World) -> list[object]:
    """The file of what is known, and how it is named on the command line."""
    said, folder = votes_of(made), made.folder
    ids = sorted({key for key, _, _ in said})
    if made.known == "soft":
        soft_of(made).to_csv(folder / "probabilities.csv", index=False)
        return ["--probabilities", folder / "probabilities.csv"]
    if made.known == "labels" or not said:
        return []
    if made.known == "llm":
        lines = [json.dumps({"id": key, "label": label, "probability": 0.9}) for key, _, label in said]
        (folder / "llm.jsonl").write_text("\n".join(lines) + "\n")
        return ["--llm", folder / "llm.jsonl"]
    if made.known == "crowd":
        frame = pd.DataFrame(said, columns=["item", "worker", "label"]).sample(frac=1, random_state=0)
    else:
        frame = wide_of(said, ids)
    frame.to_csv(folder / "votes.csv", index=False)
    return ["--votes", folder / "votes.csv"]


# files


def _tables(made: World) -> None:
    """Texts, a table, or embeddings: files with ids."""

    def rows(ids: list[str]) -> pd.DataFrame:
        if made.content == "texts":
            content = pd.DataFrame({"text": [made.features[key] for key in ids]})
        elif made.content == "table":
            content = pd.DataFrame([made.features[key] for key in ids])
        else:
            content = pd.DataFrame([made.features[key] for key in ids]).add_prefix("e")
        return pd.concat([pd.DataFrame({"id": ids}), content], axis=1)

    ids = [*made.pool, *made.gold] if made.trusted == "part" else made.pool
    items, gold = rows(ids), rows(made.gold) if made.trusted == "own" else pd.DataFrame({"id": made.gold})
    if made.known == "labels":
        said = {key: label for key, _, label in votes_of(made)}
        items["label"] = [said.get(key) for key in ids]
    items.sample(frac=1, random_state=1).to_csv(made.folder / "items.csv", index=False)
    made.new = made.folder / "new.csv"
    rows(made.new_ids).to_csv(made.new, index=False)
    made.init = [made.folder / "items.csv"]
    _gold(made, gold)
    made.init += _knowledge(made)
    if made.known == "labels":
        made.init += ["--labels", "label"]


def _gold(made: World, gold: pd.DataFrame) -> None:
    if made.trusted == "none":
        made.init += ["--classes", ",".join(made.classes)]
        return
    gold["label"] = [made.truth[key] for key in made.gold]
    gold.to_csv(made.folder / "gold.csv", index=False)
    made.init += ["--trusted", made.folder / "gold.csv"]


def _images(made: World) -> None:
    """A folder of images; trusted ones of their own stand in a folder for each class."""
    for key, pixels in made.features.items():
        if key in made.new_ids:
            path = made.folder / "new" / key
        elif made.trusted == "own" and key in made.gold:
            path = made.folder / "gold" / key
        else:
            path = made.folder / "photos" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    made.new = made.folder / "new"
    made.init = [made.folder / "photos"]
    if made.known == "labels":  # a folder for each label
        said = {key: label for key, _, label in votes_of(made)}
        moved = {key: f"{said[key]}/{key}" for key in made.pool}
        for key, to in moved.items():
            (made.folder / "photos" / to).parent.mkdir(exist_ok=True)
            (made.folder / "photos" / key).rename(made.folder / "photos" / to)
        made.pool = [moved[key] for key in made.pool]
        made.truth |= {to: made.truth[key] for key, to in moved.items()}
        made.features = {**made.features, **{to: made.features[key] for key, to in moved.items()}}
    if made.trusted == "own":
        made.init += ["--trusted", made.folder / "gold"]
    else:
        _gold(made, pd.DataFrame({"id": made.gold}))
    made.init += _knowledge(made)
    if made.known == "labels":
        made.init += ["--labels", "folder"]


def _arrays(made: World) -> None:
    """NumPy files without ids; row k of one is row k of the others."""
    folder, said = made.folder, votes_of(made)
    np.save(folder / "features.npy", np.stack([made.features[key] for key in made.pool]))
    made.init = ["--features", folder / "features.npy"]
    if made.gold:
        np.save(folder / "val_features.npy", np.stack([made.features[key] for key in made.gold]))
        pd.DataFrame({"label": [made.truth[key] for key in made.gold]}).to_csv(folder / "val_labels.csv", index=False)
        made.init += ["--val-features", folder / "val_features.npy", "--val-labels", folder / "val_labels.csv"]
    if made.known == "soft":
        weak = soft_of(made).iloc[: len(made.pool)].drop(columns="id")
        weak.to_csv(folder / "weak.csv", index=False)
        made.init += ["--weak", folder / "weak.csv"]
    elif said:
        frame = wide_of(said, made.pool).drop(columns="id")
        if made.known in ("crowd", "llm"):
            frame = long_of(said, made.pool)
        if made.known == "llm":
            frame["probability"] = 0.9
        frame.to_csv(folder / "source_votes.csv", index=False)
        made.init += ["--source-votes", folder / "source_votes.csv"]
        if made.known in ("votes on all", "votes on some") and made.gold:
            wide_of(said, made.gold).drop(columns="id").to_csv(folder / "val_source_votes.csv", index=False)
            made.init += ["--val-source-votes", folder / "val_source_votes.csv"]
    if made.trusted == "none" or made.known == "nothing":
        made.init += ["--classes", ",".join(made.classes)]
