"""From files to joined rows: roles, joins by id, findings. A dictionary says what every joined row must be."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labelchef.base.errors import InvalidInputError
from labelchef.base.intake import ColumnRole, FileRole, Plan, Severity
from labelchef.data.files.queries import SqlQuery
from labelchef.data.files.tables import FORMATS, write_table
from labelchef.data.intake.checking import near_duplicates
from labelchef.data.intake.detecting import Given, detect
from labelchef.data.intake.joining import join
from labelchef.data.intake.looking import preview
from labelchef.data.intake.raw import Raw
from tests.test_formats import images, packed

WORDS = ("the plane was late and nobody told us anything about the new gate or our bags which came days after").split()  # noqa: SIM905
CLASSES = ("bad", "fine", "good")
N = 60


def text_of(k: int) -> str:
    rng = np.random.default_rng(k)
    return " ".join(rng.choice(WORDS, size=8)) + f" number {k}"


def truth_of(k: int) -> str:
    return CLASSES[k * 7 % 3]


def items() -> pd.DataFrame:
    return pd.DataFrame({"id": [f"{k:03d}" for k in range(N)], "text": [text_of(k) for k in range(N)]})


def wide() -> pd.DataFrame:
    said = {f"rule_{j}": [truth_of(k + (k % (j + 3) == 0)) if (k + j) % 2 else "" for k in range(N)] for j in range(3)}
    return pd.DataFrame({"id": items()["id"], **said})


def long() -> pd.DataFrame:
    votes = wide().melt("id", var_name="worker", value_name="label")
    return votes[votes["label"] != ""].rename(columns={"id": "item"})


def gold(count: int = 20) -> pd.DataFrame:
    return pd.DataFrame({"id": items()["id"][:count], "label": [truth_of(k) for k in range(count)]})


def write(folder: Path, suffix: str = "csv", **frames: pd.DataFrame) -> list[Path]:
    return [write_table(frame, folder / f"{name}.{suffix}") for name, frame in frames.items()]


def codes(raw: Raw, severity: Severity | None = None) -> set[str]:
    return {one.code for one in raw.findings if severity in (None, one.severity)}


def told(raw: Raw, code: str) -> Any:
    return next(one for one in raw.findings if one.code == code)


def facts(raw: Raw) -> dict[str, Any]:
    """Everything that a row says, by id."""
    rows = [("train", raw.train), ("trusted", raw.trusted), *([("test", raw.test)] if raw.test is not None else [])]
    votes: dict[str, dict[str, Any]] = {}
    for line in raw.votes.to_dict("records"):
        votes.setdefault(line["item"], {}).setdefault(line["source"], {})[line["label"]] = line.get("probability", 1.0)
    found = {}
    for split, part in rows:
        for k, line in enumerate(part.frame.to_dict("records")):
            key = line.pop("id")
            vector = None if part.features is None else tuple(part.features[k].tolist())
            content = {name: None if value != value else value for name, value in line.items()}
            found[key] = (split, part.labels[k], content, vector, votes.get(key, {}))
    return found


def expected(trusted: int = 20) -> dict[str, Any]:
    said = wide().set_index("id").to_dict("index")
    return {
        key: (
            "trusted" if k < trusted else "train",
            truth_of(k) if k < trusted else None,
            {"text": text_of(k)},
            None,
            {source: {label: 1.0} for source, label in said[key].items() if label},
        )
        for k, key in enumerate(items()["id"])
    }


def shuffled(frame: pd.DataFrame, seed: int) -> pd.DataFrame:
    return frame.sample(frac=1, random_state=seed).reset_index(drop=True)


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("form", ["wide", "long"])
def test_items_votes_and_trusted_labels_of_every_format(tmp_path: Path, suffix: str, form: str) -> None:
    votes = shuffled(wide() if form == "wide" else long(), 1)
    paths = write(tmp_path, suffix, tweets=items(), votes=votes, gold=shuffled(gold(), 2))
    plan = detect(paths)
    assert [one.role for one in plan.files] == [FileRole.ITEMS, FileRole.VOTES, FileRole.TRUSTED]
    assert all(one.why for one in plan.files)
    raw = join(plan)
    assert facts(raw) == expected()
    assert raw.classes == CLASSES
    assert raw.content == {"text": ColumnRole.TEXT}
    assert not codes(raw, Severity.ERROR)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(seeds=st.tuples(*[st.integers(0, 2**31)] * 3), suffix=st.sampled_from(["csv", "jsonl", "parquet"]))
def test_the_order_of_rows_in_files_changes_nothing(tmp_path: Path, seeds: tuple[int, ...], suffix: str) -> None:
    frames = {"tweets": items(), "votes": long(), "gold": gold()}
    straight = join(detect(write(tmp_path, suffix, **frames)))
    mixed = join(
        detect(write(tmp_path, suffix, **{n: shuffled(f, s) for (n, f), s in zip(frames.items(), seeds, strict=True)}))
    )
    assert facts(mixed) == facts(straight) == expected()
    for name in ("train", "trusted"):
        one, other = getattr(straight, name), getattr(mixed, name)
        assert one.ids == other.ids
        assert one.labels == other.labels
    pd.testing.assert_frame_equal(straight.votes, mixed.votes)
    assert straight.findings == mixed.findings


def test_a_folder_a_zip_and_options_say_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    paths = write(folder, tweets=items(), votes=long(), gold=gold())
    archive = packed(tmp_path / "mine.zip", {f"mine/{path.name}": path.read_bytes() for path in paths})
    said = Given(text=("text",), votes=(paths[1],), trusted=(paths[2],))
    for plan in (detect([folder]), detect([archive]), detect(paths[:1], said), detect(paths, said)):
        assert facts(join(plan)) == expected()
    assert Plan.of_json(json.loads(json.dumps(detect(paths).as_json()))) == detect(paths)


def test_rows_of_a_query_are_items(tmp_path: Path) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/d.db")
    with engine.begin() as connection:
        items().to_sql("tweets", connection, index=False)
    engine.dispose()
    paths = write(tmp_path, votes=long(), gold=gold())
    plan = detect([SqlQuery(f"sqlite:///{tmp_path}/d.db", "select * from tweets"), *paths])
    assert facts(join(plan)) == expected()


def test_trusted_and_test_rows_of_their_own(tmp_path: Path) -> None:
    more = pd.DataFrame(
        {"text": [text_of(k) for k in range(100, 110)], "label": [truth_of(k) for k in range(100, 110)]}
    )
    paths = write(tmp_path, tweets=items(), votes=wide(), gold=gold(), test=more)
    raw = join(detect(paths))
    assert raw.test is not None
    assert raw.test.frame["text"].tolist() == more["text"].tolist()
    assert list(raw.test.labels) == more["label"].tolist()
    assert raw.test.ids == [f"test-{k}" for k in range(10)]
    assert {key: row for key, row in facts(raw).items() if row[0] != "test"} == expected()
    named = more.assign(id=[f"{k:03d}" for k in (50, 51, *range(200, 208))])  # two of the items, eight new ones
    both = join(detect(write(tmp_path, tweets=items(), votes=wide(), gold=gold(), test=named)))
    assert both.test is not None
    assert both.test.ids == ["050", "051", *(str(k) for k in range(200, 208))]
    assert both.test.frame["text"][0] == text_of(50)
    assert len(both.train) == N - 20 - 2


def test_features_by_id(tmp_path: Path) -> None:
    V = np.arange(N * 3, dtype=np.float32).reshape(N, 3)
    order = np.random.default_rng(0).permutation(N)
    np.savez(tmp_path / "embeddings.npz", ids=items()["id"].to_numpy()[order].astype(str), X=V[order])
    paths = [*write(tmp_path, tweets=items(), votes=wide(), gold=gold()), tmp_path / "embeddings.npz"]
    found = facts(join(detect(paths)))
    assert {key: row[3] for key, row in found.items()} == {
        key: tuple(V[k].tolist()) for k, key in enumerate(items()["id"])
    }
    table = pd.DataFrame({"id": items()["id"], **{f"e{j}": V[:, j % 3] + 0.5 for j in range(8)}})
    plan = detect(write(tmp_path, tweets=items(), votes=wide(), gold=gold(), embeddings=shuffled(table, 4)))
    assert plan.of(FileRole.FEATURES)[0].named(ColumnRole.FEATURE) == tuple(f"e{j}" for j in range(8))
    assert facts(join(plan))["007"][3][:3] == tuple((V[7] + 0.5).tolist())


def test_arrays_without_ids_are_refused_unless_position_is_told(tmp_path: Path) -> None:
    V = np.arange(N * 3, dtype=np.float32).reshape(N, 3)
    np.save(tmp_path / "embeddings.npy", V)
    L = np.full((N, 2), -1)
    L[::2, 0], L[::3, 1] = 1, 2
    np.save(tmp_path / "lf_matrix.npy", L)
    order = np.random.default_rng(0).permutation(N)
    numbered = items().iloc[order]
    truth = gold().assign(label=[str(CLASSES.index(label)) for label in gold()["label"]])
    paths = [*write(tmp_path, tweets=numbered, gold=truth), tmp_path / "embeddings.npy", tmp_path / "lf_matrix.npy"]
    raw = join(detect(paths))
    assert codes(raw, Severity.ERROR) == {"no-ids"}
    assert raw.train.features is None
    assert "--by-position" in told(raw, "no-ids").message
    found = facts(join(detect(paths, Given(by_position=True))))
    for at, k in enumerate(order.tolist()):
        split, _, content, vector, votes = found[f"{k:03d}"]
        assert content == {"text": text_of(k)}
        assert vector == tuple(V[at].tolist())
        assert votes == {f"values_{j}": {str(L[at, j]): 1.0} for j in range(2) if L[at, j] >= 0}
        assert split == ("trusted" if k < 20 else "train")
    np.save(tmp_path / "embeddings.npy", V[:-1])
    assert "different-lengths" in codes(join(detect(paths, Given(by_position=True))), Severity.ERROR)


def test_items_without_ids_take_nothing_that_names_ids(tmp_path: Path) -> None:
    paths = write(
        tmp_path, tweets=items()[["text"]], votes=long().assign(item=[str(int(k)) for k in long()["item"]]), gold=gold()
    )
    raw = join(detect(paths))
    assert "no-ids" in codes(raw, Severity.ERROR)
    assert raw.votes.empty
    by_row = join(detect(paths[:2], Given(by_position=True)))
    assert by_row.votes.shape[0] == len(long())
    assert facts(by_row)["7"][2] == {"text": text_of(7)}


def test_row_numbers_that_pandas_wrote_join_nothing(tmp_path: Path) -> None:
    items()[["text"]].sample(frac=1, random_state=0).reset_index(drop=True).to_csv(tmp_path / "tweets.csv")
    gold()[["label"]].to_csv(tmp_path / "gold.csv")
    raw = join(detect([tmp_path / "tweets.csv", tmp_path / "gold.csv"]))
    assert "no-ids" in codes(raw, Severity.ERROR)
    assert len(raw.trusted) == 0


def test_one_file_with_everything(tmp_path: Path) -> None:
    frame = (
        items()
        .merge(wide(), on="id")
        .assign(gold_label=[truth_of(k) if k < 20 else "" for k in range(N)], likes=range(N))
    )
    plan = detect(write(tmp_path, all=frame))
    roles = plan.files[0].columns
    assert roles["gold_label"] is ColumnRole.LABEL
    assert roles["likes"] is ColumnRole.SHOWN
    assert {roles[f"rule_{j}"] for j in range(3)} == {ColumnRole.SOURCE}
    found = {key: (*row[:2], {"text": row[2]["text"]}, *row[3:]) for key, row in facts(join(plan)).items()}
    assert found == expected()


def test_a_split_column_parts_the_rows(tmp_path: Path) -> None:
    parts = ["train"] * 30 + ["valid"] * 20 + ["test"] * 10
    frame = items().assign(label=[truth_of(k) for k in range(N)], split=parts)
    raw = join(detect(write(tmp_path, all=frame)))
    assert (len(raw.train), len(raw.trusted), len(raw.test or [])) == (30, 20, 10)
    assert set(raw.votes["item"]) == set(raw.train.ids)  # no vote that is the truth itself
    assert "label-role" in codes(raw)
    right = join(detect(write(tmp_path, all=frame), Given(truth="label")))
    assert right.votes.empty
    assert right.train.labels[0] == truth_of(0)


def test_probabilities_become_soft_votes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(3), size=N).round(6)
    P[:, 2] = (1 - P[:, 0] - P[:, 1]).round(6)
    soft = pd.DataFrame({"id": items()["id"], **{f"p_{name}": P[:, j] for j, name in enumerate(CLASSES)}})
    plan = detect(write(tmp_path, tweets=items(), soft=shuffled(soft, 1), gold=gold()))
    assert plan.of(FileRole.WEAK)[0].named(ColumnRole.CLASS) == tuple(f"p_{name}" for name in CLASSES)
    votes = facts(join(plan))["033"][4]["weak labels"]
    assert {name: votes.get(name, 0.0) for name in CLASSES} == pytest.approx(dict(zip(CLASSES, P[33], strict=True)))


def test_a_table_without_texts_is_learned_from(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "customer_id": [f"C{k:05d}" for k in range(N)], "age": rng.integers(18, 90, N), "income": rng.normal(size=N).round(4),
        "city": rng.choice(["Rome", "Oslo", ""], N), "order_number": rng.permutation(N) + 1000, "same": 1,
    })  # fmt: skip
    truth = pd.DataFrame({"customer_id": frame["customer_id"][:30], "label": [truth_of(k) for k in range(30)]})
    votes = pd.DataFrame({"customer_id": frame["customer_id"], "old": ["good" if a > 50 else "" for a in frame["age"]],
                          "young": ["bad" if a < 30 else "" for a in frame["age"]]})  # fmt: skip
    plan = detect(write(tmp_path, customers=frame, votes=votes, gold=truth))
    roles = plan.of(FileRole.ITEMS)[0].columns
    assert roles["customer_id"] is ColumnRole.ID
    assert roles["order_number"] is ColumnRole.SHOWN  # an id, not a feature
    assert [name for name, role in roles.items() if role is ColumnRole.FEATURE] == ["age", "income", "city", "same"]
    raw = join(plan)
    assert raw.train.frame["income"].dtype == np.float64
    assert told(raw, "constant-columns").examples == ("same",)
    assert facts(raw)["C00040"][2]["age"] == frame["age"][40]
    forced = join(
        detect(write(tmp_path, customers=frame, votes=votes, gold=truth), Given(columns=("age", "order_number")))
    )
    assert told(forced, "id-like-features").examples == ("order_number",)


def test_images_in_class_folders_and_named_by_a_table(tmp_path: Path) -> None:
    folder = images(tmp_path / "pets", *(f"{name}/{k}.png" for name in ("cat", "dog") for k in range(30)))
    truth = pd.DataFrame({"id": [f"cat/{k}.png" for k in range(10)] + [f"dog/{k}.png" for k in range(10)],
                          "label": ["cat"] * 10 + ["dog"] * 10})  # fmt: skip
    (path,) = write(tmp_path, gold=truth)
    raw = join(detect([folder, path]))
    assert raw.media == folder
    assert (len(raw.train), len(raw.trusted)) == (40, 20)
    assert facts(raw)["cat/20.png"] == ("train", None, {"image": "cat/20.png"}, None, {"folder": {"cat": 1.0}})
    named = pd.DataFrame(
        {
            "key": [f"k{k}" for k in range(60)],
            "file": [f"{name}\\{k}.png" for name in ("cat", "dog") for k in range(30)],
        }
    )
    named.loc[0, "file"] = "cat/none.png"
    labels = pd.DataFrame({"key": [f"k{k}" for k in range(20, 40)], "label": ["cat"] * 10 + ["dog"] * 10})
    by_table = join(detect(write(tmp_path, pictures=named, gold=labels), Given(media=(folder,))))
    assert by_table.media == folder
    assert by_table.content == {"file": ColumnRole.IMAGE}
    assert facts(by_table)["k35"][2] == {"file": "dog/5.png"}
    assert told(by_table, "images-missing").examples == ("cat/none.png",)


# findings


def test_duplicate_and_missing_ids_are_told(tmp_path: Path) -> None:
    twice = pd.concat([items(), items().iloc[[3]], items().iloc[[4]].assign(text="another text for the same id here")])
    raw = join(detect(write(tmp_path, tweets=twice, votes=wide(), gold=gold())))
    assert told(raw, "repeated-rows").examples == ("003",)
    assert told(raw, "duplicate-ids").examples == ("004",)
    assert told(raw, "duplicate-ids").severity is Severity.ERROR
    lost = items().astype(object)
    lost.loc[5, "id"] = None
    stranger = pd.concat([wide(), wide().iloc[:2].assign(id=["x1", "x2"])])
    found = join(detect(write(tmp_path, tweets=lost, votes=stranger, gold=gold(5))))
    assert told(found, "ids-empty").count == 1
    assert told(found, "ids-unmatched").examples == ("005", "x1", "x2")
    assert told(found, "ids-unmatched").severity is Severity.WARNING


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        (lambda key: key.lstrip("0") or "0", "leading zeros"),
        (lambda key: f" {key}", "spaces"),
        (lambda key: f"{int(key)}.0", ""),
        (lambda key: f"nothing {key}", ""),
    ],
)
def test_ids_written_otherwise_match_nothing_and_the_message_says_why(tmp_path: Path, change: Any, hint: str) -> None:
    other = wide().assign(id=[change(key) for key in wide()["id"]])
    raw = join(detect(write(tmp_path, tweets=items(), votes=other, gold=gold())))
    assert raw.votes.empty
    wrong = told(raw, "ids-unmatched")
    assert wrong.severity is Severity.ERROR
    assert hint in wrong.message
    assert ("--id" in wrong.message) == (not hint)  # else it is the right column
    assert ("alike in both files" in wrong.message) == bool(hint)


def test_the_same_text_in_two_parts_is_told(tmp_path: Path) -> None:
    frame = items()
    frame.loc[40, "text"] = "  " + text_of(2).upper().replace(" ", "   ")
    frame.loc[41, "text"] = text_of(42) + " indeed"
    test = pd.DataFrame({"text": [text_of(3), text_of(50), text_of(900)], "label": ["bad", "fine", "good"]})
    raw = join(detect(write(tmp_path, tweets=frame, votes=wide(), gold=gold(), test=test)))
    assert told(raw, "leak-train-trusted").examples == ("040",)
    assert "stay in train" in told(raw, "leak-train-trusted").message
    assert told(raw, "copies-of-known").examples == ("050",)
    assert told(raw, "leak-trusted-test").examples == ("003",)
    assert told(raw, "near-duplicates").examples == ("042 ~ 041",)
    assert (
        told(raw, "near-duplicates").message == "rows that have almost the same text as another one: 1; they are kept"
    )
    assert "040" in raw.train.ids


def test_near_duplicates_agree_with_the_overlap_of_word_triples() -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, size=30)) for _ in range(80)]
    for k in range(0, 80, 4):
        words = texts[k].split()
        words[int(rng.integers(30))] = "changed"
        texts.append(" ".join(words))

    def triples(text: str) -> set[tuple[str, ...]]:
        words = text.split()
        return set(zip(words, words[1:], words[2:], strict=False))

    def overlap(a: int, b: int) -> float:
        one, other = triples(texts[a]), triples(texts[b])
        return len(one & other) / len(one | other)

    found = near_duplicates(texts)
    assert all(overlap(a, b) > 0.5 for a, b in found)
    alike = {b for a, b in itertools.combinations(range(len(texts)), 2) if overlap(a, b) > 0.85}
    assert alike
    assert alike <= {a for a, _ in found}


def test_class_names_that_differ_little_are_told(tmp_path: Path) -> None:
    other = wide().replace({"rule_1": {"good": "Good"}})
    raw = join(detect(write(tmp_path, tweets=items(), gold=gold()), Given(votes=tuple(write(tmp_path, votes=other)))))
    assert "Did 'Good' mean 'good'?" in told(raw, "classes-only-in-votes").message
    assert told(raw, "similar-classes").examples == ("Good / good",)
    named = join(
        detect(
            write(tmp_path, tweets=items(), gold=gold()),
            Given(votes=tuple(write(tmp_path, votes=other)), classes=CLASSES),
        )
    )
    assert named.classes == CLASSES
    assert set(named.votes["label"]) == set(CLASSES)
    assert told(named, "unknown-class").count == int((other["rule_1"] == "Good").sum())


def test_class_numbers_need_the_names_in_their_order(tmp_path: Path) -> None:
    numbers = wide().replace({name: str(k) for k, name in enumerate(CLASSES)} | {"": "-1"})
    paths = write(tmp_path, tweets=items(), votes=numbers, gold=gold())
    assert "class-numbers" in codes(join(detect(paths)), Severity.ERROR)
    assert facts(join(detect(paths, Given(classes=CLASSES)))) == expected()


def test_what_is_missing_is_an_error_that_names_the_option(tmp_path: Path) -> None:
    raw = join(detect(write(tmp_path, tweets=items(), votes=wide())))
    assert "--trusted" in told(raw, "no-trusted").message
    assert told(raw, "no-trusted").severity is Severity.NOTE
    few = join(detect(write(tmp_path, tweets=items(), votes=wide(), gold=gold(4))))
    assert told(few, "few-trusted").count == 3
    none = join(detect(write(tmp_path, tweets=items(), gold=gold())))
    assert "--rules" in told(none, "no-votes").message
    empty = items()
    empty.loc[[30, 31], "text"] = ""
    assert told(join(detect(write(tmp_path, tweets=empty, votes=wide(), gold=gold()))), "empty-texts").count == 2
    with pytest.raises(InvalidInputError, match=r"--text reviw: no file has a column.*Did you mean"):
        detect(write(tmp_path, tweets=items().rename(columns={"text": "review"})), Given(text=("reviw",)))


def test_contradictions_are_told_and_left_out(tmp_path: Path) -> None:
    truth = pd.concat([gold(), pd.DataFrame({"id": ["001"], "label": ["good" if truth_of(1) != "good" else "bad"]})])
    votes = pd.concat([long(), long().iloc[[0]].assign(label="bad" if long()["label"].iloc[0] != "bad" else "good")])
    raw = join(detect(write(tmp_path, tweets=items(), votes=votes, gold=truth)))
    assert told(raw, "contradictory-labels").count == 1
    assert facts(raw)["001"][0] == "train"
    assert told(raw, "contradictory-votes").count == 1
    item, source = long().iloc[0][["item", "worker"]]
    assert source not in facts(raw)[item][4]
    both = join(detect(write(tmp_path, tweets=items(), votes=wide(), gold=gold(), test=gold(10))))
    assert told(both, "trusted-and-test").count == 10
    assert (len(both.trusted), len(both.test or [])) == (10, 10)


def test_more_votes_are_added(tmp_path: Path) -> None:
    plan = detect(write(tmp_path, tweets=items(), gold=gold()))
    more = pd.DataFrame(
        {"item": ["030", "unknown"], "source": ["f", "f"], "label": ["good", "good"], "probability": [0.9, 0.9]}
    )
    raw = join(plan, more_votes=more)
    assert raw.votes.to_dict("records") == [{"item": "030", "source": "f", "label": "good", "probability": 0.9}]
    with pytest.raises(InvalidInputError, match="expected item, source and label"):
        join(plan, more_votes=more[["item"]])


def test_corrections_win_over_what_is_detected(tmp_path: Path) -> None:
    frame = items().assign(note=[f"a note of several words about {k}" for k in range(N)])
    paths = write(tmp_path, tweets=frame, votes=wide(), gold=gold())
    plan = detect(paths)
    assert plan.files[0].columns["note"] is ColumnRole.TEXT
    assert "several-texts" in {one.code for one in plan.findings}
    told_so = Given(column_roles={str(paths[0]): {"note": ColumnRole.SHOWN}}, roles={str(paths[2]): FileRole.TEST})
    again = detect(paths, told_so)
    assert again.files[0].columns["note"] is ColumnRole.SHOWN
    assert again.files[2].role is FileRole.TEST
    assert again.files[2].columns == {"id": ColumnRole.ID, "label": ColumnRole.LABEL}
    changed = plan.with_file(replace(plan.files[0], columns={**plan.files[0].columns, "note": ColumnRole.IGNORED}))
    assert join(changed).content == {"text": ColumnRole.TEXT}


def test_python_is_never_run_unless_named(tmp_path: Path) -> None:
    (tmp_path / "functions.py").write_text("raise SystemExit('was run')")
    paths = [*write(tmp_path, tweets=items(), gold=gold()), tmp_path / "functions.py"]
    plan = detect(paths)
    assert plan.files[-1].role is FileRole.IGNORED
    assert "--functions" in next(one for one in plan.findings if one.code == "python-file").message
    named = detect(paths, Given(functions=(tmp_path / "functions.py",)))
    assert named.of(FileRole.FUNCTIONS)[0].path == str(tmp_path / "functions.py")


def test_the_preview_shows_joined_rows(tmp_path: Path) -> None:
    frame = items()
    frame.loc[59, "text"] = "long " * 200
    plan = detect(write(tmp_path, tweets=frame, votes=wide(), gold=gold()))
    raw = join(plan)
    shown = preview(plan, raw, n_rows=12)
    assert shown.usable
    assert (shown.n_train, shown.n_trusted, shown.n_test) == (40, 20, 0)
    assert shown.sources == ("rule_0", "rule_1", "rule_2")
    assert len(shown.rows) == 12
    assert {row.split for row in shown.rows} == {"train", "trusted"}
    by_id = facts(raw)
    for row in shown.rows:
        split, label, content, _, votes = by_id[row.id]
        assert (row.split, row.label, dict(row.content)) == (split, label, content)
        assert dict(row.votes) == {source: next(iter(said)) for source, said in votes.items()}
    whole = preview(plan, raw, n_rows=100)
    assert len(whole.rows) == N
    assert all(len(row.content["text"] or "") <= 300 for row in whole.rows)
    assert not preview(plan, join(detect(write(tmp_path, tweets=items())))).usable


def test_the_id_is_the_column_that_other_files_name(tmp_path: Path) -> None:
    frame = items().rename(columns={"id": "tweet_id"})
    frame.insert(0, "unit_id", [str(900 - k) for k in range(N)])
    truth = gold().rename(columns={"id": "tweet_id"})
    truth.insert(0, "id", [str(k) for k in range(len(truth))])  # numbers of its own rows
    said = shuffled(long(), 1).rename(columns={"item": "tweet", "label": "sentiment"})
    plan = detect(write(tmp_path, tweets=frame, votes=said, gold=truth))
    assert [one.named(ColumnRole.ID) for one in plan.files] == [("tweet_id",), ("tweet",), ("tweet_id",)]
    found = {key: (*row[:2], {"text": row[2]["text"]}, *row[3:]) for key, row in facts(join(plan)).items()}
    assert found == expected()


def test_a_repeated_customer_is_no_id(tmp_path: Path) -> None:
    frame = items()[["text"]].assign(
        customer_id=[str(k // 6) for k in range(N)], gold=[truth_of(k) if k < 20 else "" for k in range(N)]
    )
    raw = join(detect(write(tmp_path, reviews=frame)))
    assert raw.content == {"text": ColumnRole.TEXT, "customer_id": ColumnRole.SHOWN}
    assert (len(raw.train), len(raw.trusted)) == (40, 20)
    assert not codes(raw, Severity.ERROR)


def test_ids_may_have_the_name_of_the_text(tmp_path: Path) -> None:
    """A crowd's table calls the id of a sentence `sentence`, as the items call its text."""
    said = shuffled(long(), 1).rename(columns={"item": "sentence", "worker": "user.id", "label": "sentiment"})
    plan = detect(write(tmp_path, tweets=items().rename(columns={"text": "sentence"}), votes=said, gold=gold()))
    raw = join(plan)
    assert ("sentence",) in [one.named(ColumnRole.ID) for one in plan.files]
    assert not codes(raw, Severity.ERROR)
    assert set(preview(plan, raw).sources) == set(long()["worker"])


def test_ids_that_mean_other_items_are_an_error(tmp_path: Path) -> None:
    wrong = gold().assign(text=[text_of(k + 1) for k in range(20)])
    raw = join(detect(write(tmp_path, tweets=items(), votes=wide(), gold=wrong)))
    assert told(raw, "content-differs").severity is Severity.ERROR
    assert told(raw, "content-differs").count == 20
    right = join(
        detect(write(tmp_path, tweets=items(), votes=wide(), gold=gold().assign(text=[text_of(k) for k in range(20)])))
    )
    assert facts(right) == expected()


def test_a_folder_with_a_table_and_the_images_that_it_names(tmp_path: Path) -> None:
    folder = images(tmp_path / "all", *(f"pictures/{k}.png" for k in range(40)))
    frame = pd.DataFrame({"id": [f"k{k}" for k in range(40)], "file": [f"{k}.png" for k in range(40)]})
    truth = pd.DataFrame({"id": [f"k{k}" for k in range(20)], "label": ["cat", "dog"] * 10})
    write(folder, pictures=frame, gold=truth)
    archive = packed(
        tmp_path / "p.zip", {f"{k}.png": (folder / "pictures" / f"{k}.png").read_bytes() for k in range(40)}
    )
    raw = join(detect([folder]))
    assert raw.media == folder / "pictures"
    assert raw.content == {"file": ColumnRole.IMAGE}
    assert (len(raw.train), len(raw.trusted)) == (20, 20)
    assert "images-missing" not in codes(raw)
    zipped = join(detect(write(tmp_path, pictures=frame, gold=truth), Given(media=(archive,))))
    assert zipped.media is not None
    assert (zipped.media / "7.png").read_bytes() == (folder / "pictures" / "7.png").read_bytes()


def test_a_column_of_row_numbers_that_matches_ids_is_told(tmp_path: Path) -> None:
    numbered = items().assign(id=[str(k) for k in range(N)])
    said = wide().assign(id=[str(k) for k in range(N)]).rename(columns={"id": "index"})
    raw = join(detect(write(tmp_path, tweets=numbered, votes=said)))
    assert "--by-position" in told(raw, "row-numbers-as-ids").message
    same = join(detect(write(tmp_path, tweets=numbered.rename(columns={"id": "index"}), votes=said)))
    assert "row-numbers-as-ids" not in codes(same)
