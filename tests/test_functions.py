"""Labelling functions in a Python file, Snorkel's functions and label matrices."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from labelchef.base.errors import InvalidInputError
from labelchef.believe.functions import apply_functions, load_functions, read_label_matrix
from labelchef.data.intake.detecting import Given
from labelchef.data.intake.raw import Raw
from labelchef.server.intake.starting import look

FRAME = pd.DataFrame(
    {"id": ["007", "8", "9", "10"], "text": ["http://x.y", "I love it", None, "win win"], "n words": [1, 3, 0, 2]}
)


def file_of(folder: Path, text: str) -> Path:
    path = folder / "my_functions.py"
    path.write_text(text, encoding="utf-8")
    return path


OWN = """
from labelchef import labelling_function
from words_beside import WINS

@labelling_function(columns=["text"])
def has_link(row):
    return "spam" if "http" in (row.text or "") else None

@labelling_function("few words", columns=["n words"])
def few(row):
    return "ham" if row["n words"] > 2 else None

wins = [labelling_function(f"says {word}")(lambda row, word=word: "spam" if row.text and word in row.text else None)
        for word in WINS]
"""


def test_a_file_of_functions_votes(tmp_path: Path) -> None:
    (tmp_path / "words_beside.py").write_text('WINS = ["win", "free"]\n', encoding="utf-8")
    loaded = load_functions(file_of(tmp_path, OWN))
    assert [one.name for one in loaded.functions] == ["has_link", "few words", "says win", "says free"]
    assert loaded.classes is None
    told: list[tuple[str, int, int]] = []
    result = apply_functions(loaded.functions, FRAME, progress=lambda *what: told.append(what))
    assert result.votes.values.tolist() == [
        ["007", "has_link", "spam"],
        ["8", "few words", "ham"],
        ["10", "says win", "spam"],
    ]
    assert {str(kind) for kind in result.votes.dtypes} == {"str"}
    assert [one.n_votes for one in result.outcomes] == [1, 1, 1, 0]
    assert result.findings == ()
    assert told[-1] == ("labelling functions", 4, 4)


def test_a_function_sees_only_its_columns(tmp_path: Path) -> None:
    text = """
from labelchef import labelling_function
@labelling_function(columns=["text"])
def peeks(row):
    return "spam" if len(row) == 1 and list(row) == ["text"] and "n words" not in row else "ham"
"""
    loaded = load_functions(file_of(tmp_path, text))
    assert set(apply_functions(loaded.functions, FRAME).votes["label"]) == {"spam"}


SNORKEL = """
from snorkel.labeling import LabelingFunction, labeling_function
from snorkel.preprocess import preprocessor

CLASSES = ["ham", "spam"]
HAM, SPAM, ABSTAIN = 0, 1, -1

@preprocessor(memoize=True)
def lower(x):
    x.lowered = (x.text or "").lower()
    return x

@labeling_function(pre=[lower])
def loves(x):
    return HAM if "love" in x.lowered else ABSTAIN

@labeling_function(resources={"words": ["win", "http"]})
def sells(x, words):
    return SPAM if any(word in str(x["text"]) for word in words) else ABSTAIN

lfs = [loves, sells, LabelingFunction(name="long", f=lambda x: HAM if x["n words"] >= 3 else ABSTAIN)]
"""


def test_snorkels_own_functions_vote_as_in_snorkel(tmp_path: Path) -> None:
    pytest.importorskip("snorkel")
    from snorkel.labeling import PandasLFApplier

    loaded = load_functions(file_of(tmp_path, SNORKEL))
    assert loaded.classes == ("ham", "spam")
    assert [one.name for one in loaded.functions] == ["loves", "sells", "long"]
    votes = apply_functions(loaded.functions, FRAME, classes=loaded.classes).votes
    frame = FRAME.astype(object).where(FRAME.notna(), None)
    L = PandasLFApplier(list(loaded.functions)).apply(frame, progress_bar=False)
    np.savez(tmp_path / "L.npz", L=L, ids=np.array(FRAME["id"].tolist()), names=np.array(["loves", "sells", "long"]))
    matrix = read_label_matrix(tmp_path / "L.npz", FRAME["id"].tolist(), classes=["ham", "spam"])
    pd.testing.assert_frame_equal(votes, matrix)
    assert len(votes) == 4


def test_snorkels_functions_need_class_names(tmp_path: Path) -> None:
    pytest.importorskip("snorkel")
    loaded = load_functions(file_of(tmp_path, SNORKEL.replace("CLASSES =", "OTHER =")))
    with pytest.raises(InvalidInputError, match=r"'loves' is one of Snorkel's .* CLASSES = .* or --classes"):
        apply_functions(loaded.functions, FRAME, classes=loaded.classes)
    assert load_functions(file_of(tmp_path, SNORKEL), classes=["spam", "ham"]).classes == ("ham", "spam")
    loaded = load_functions(file_of(tmp_path, SNORKEL.replace("CLASSES =", "OTHER =")), classes=["ham"])
    with pytest.raises(
        InvalidInputError, match=r"'sells' answers 1 on row '007'; expected -1 or the id of a class, 0 to 0"
    ):
        apply_functions(loaded.functions, FRAME, classes=loaded.classes)


FAILS = """
from labelchef import labelling_function

@labelling_function()
def link(row):
    return "spam" if "http" in row.text else None

@labelling_function()
def ends(row):
    raise SystemExit

@labelling_function()
def fine(row):
    return "ham"
"""


def test_errors_are_counted_and_named_and_mute_above_a_share(tmp_path: Path) -> None:
    loaded = load_functions(file_of(tmp_path, FAILS))
    result = apply_functions(loaded.functions, FRAME, most_failing=0.25)
    link, ends, fine = result.outcomes
    assert (link.n_votes, link.n_failed, link.muted) == (1, 1, False)
    assert link.first_failure is not None
    assert (link.first_failure.item, link.first_failure.line) == ("9", 6)
    assert link.first_failure.error.startswith("TypeError: ")
    assert (ends.n_votes, ends.n_failed, ends.muted) == (0, 2, True)  # it is not called again
    assert (fine.n_votes, fine.n_failed) == (4, 0)
    failed, muted = result.findings
    assert (failed.code, failed.count, failed.examples) == ("function_failed", 1, ("9",))
    assert "'link' failed on 1 rows, first on row '9', line 6: TypeError" in failed.message
    assert (muted.code, muted.count) == ("function_muted", 2)
    strict = apply_functions(loaded.functions, FRAME)
    assert [one.muted for one in strict.outcomes] == [True, True, False]
    assert set(strict.votes["source"]) == {"fine"}  # the vote before the error does not count either
    with pytest.raises(InvalidInputError, match=r"every labelling function fails on more than 5% .*'link' failed"):
        apply_functions(loaded.functions[:2], FRAME)


@pytest.mark.parametrize("answer", ["1", "True", "''", "['spam']", "'egg'", "float('nan')"])
def test_an_answer_that_is_no_class_is_refused(tmp_path: Path, answer: str) -> None:
    text = f"from labelchef import labelling_function\n@labelling_function()\ndef one(row):\n    return {answer}\n"
    loaded = load_functions(file_of(tmp_path, text))
    with pytest.raises(
        InvalidInputError, match=r"'one' answers .* on row '007'; expected None or one of \['ham', 'spam'\]"
    ):
        apply_functions(loaded.functions, FRAME, classes=["ham", "spam"])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def f(:\n", "line 1: invalid syntax"),
        ("x = 1\n\nraise RuntimeError('no model here')\n", "line 3: RuntimeError: no model here"),
        ("import sys\nsys.exit(1)\n", "line 2: SystemExit: 1"),
        ("import no_such_module_at_all\n", "line 1: ModuleNotFoundError"),
        ("def f(row):\n    return None\n", "holds no labelling function; put @labelling_function\\(\\) above f"),
        ("from labelchef import labelling_function\n@labelling_function\ndef f(row):\n    return None\n", "with brackets"),
        ("from labelchef import labelling_function\n@labelling_function(columns='text')\ndef f(row): ...\n", "expected a list"),
        ("from labelchef import labelling_function\nl = [labelling_function('a')(len) for _ in '12']\n", "two .*'a'"),
        ("from labelchef import labelling_function\nf = labelling_function()(len)\nCLASSES = 'ham'\n", "CLASSES is 'ham'"),
        ("from labelchef import labelling_function\nf = labelling_function()(len)\nCLASSES = ['a', 'a']\n", "CLASSES is"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_refused_with_its_line(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(InvalidInputError, match=why):
        load_functions(file_of(tmp_path, text))
    with pytest.raises(InvalidInputError, match="no Python file"):
        load_functions(tmp_path)


def test_columns_that_are_missing_are_named_before_anything_runs(tmp_path: Path) -> None:
    text = (
        "from labelchef import labelling_function\n@labelling_function(columns=['txt'])\ndef one(row):\n    return 1\n"
    )
    loaded = load_functions(file_of(tmp_path, text))
    with pytest.raises(
        InvalidInputError, match=r"'one' reads the column 'txt'; the rows have \['id', 'text', 'n words'\]"
    ):
        apply_functions(loaded.functions, FRAME)
    with pytest.raises(InvalidInputError, match="no column 'id'"):
        apply_functions(loaded.functions, FRAME.drop(columns="id"))


def test_importing_the_package_stays_light() -> None:
    code = "import sys, labelchef; assert 'pandas' not in sys.modules; labelchef.labelling_function"
    subprocess.run([sys.executable, "-c", code], check=True)


L = np.array([[0, -1], [1, 1], [-1, -1]], dtype=np.int8)
IDS = ["007", "8", "9"]


def test_label_matrices_are_joined_by_id(tmp_path: Path) -> None:
    np.savez(tmp_path / "L.npz", L=L, ids=np.array(["9", "007", "8"]), classes=np.array(["ham", "spam"]))
    votes = read_label_matrix(tmp_path / "L.npz", IDS)
    expected = [["9", "function 1", "ham"], ["007", "function 1", "spam"], ["007", "function 2", "spam"]]
    assert votes.values.tolist() == expected
    np.save(tmp_path / "L.npy", L.astype(float))
    votes = read_label_matrix(tmp_path / "L.npy", IDS, classes=["ham", "spam"], by_position=True)
    assert votes["item"].tolist() == ["007", "8", "8"]


def test_label_matrices_that_say_too_little_are_refused(tmp_path: Path) -> None:
    def refused(why: str, *, classes: list[str] | None = None, by_position: bool = False, **arrays: Any) -> None:
        np.savez(tmp_path / "L.npz", **arrays)
        with pytest.raises(InvalidInputError, match=why):
            read_label_matrix(tmp_path / "L.npz", IDS, classes=classes, by_position=by_position)

    both = ["ham", "spam"]
    refused("it has no ids; write np.savez", L=L, classes=both)
    refused("name the classes in their order", L=L, ids=IDS)
    refused("it holds -1 to 1; expected -1 .* to 0", classes=["ham"], L=L, ids=IDS)
    refused("expected -1", classes=both, L=L - 1, ids=IDS)
    refused("3 rows for|2 rows for 3 items", classes=both, by_position=True, L=L[:2])
    refused("2 different ids for 3 rows", classes=both, L=L, ids=["8", "8", "9"])
    refused("2 different ids for 3 rows", classes=both, L=L, ids=["8", "9"])
    refused("1 different names for 2 functions", classes=both, L=L, ids=IDS, names=["a", "a"])
    refused("expected an array L of shape", classes=both, L=L[0], ids=IDS)
    refused("expected whole numbers", classes=both, L=L + 0.5, ids=IDS)
    refused("ids is float64", classes=both, L=L, ids=[1.0, 2.0, 3.0])
    (tmp_path / "L.npy").write_bytes(b"\x93NUMPY\x01\x00")
    with pytest.raises(InvalidInputError, match="it cannot be read"):
        read_label_matrix(tmp_path / "L.npy", IDS)
    np.save(tmp_path / "L.npy", np.array([[None]]), allow_pickle=True)
    with pytest.raises(InvalidInputError, match="it cannot be read"):
        read_label_matrix(tmp_path / "L.npy", IDS)


def test_class_ids_of_functions_need_names_on_the_way_into_a_campaign(tmp_path: Path) -> None:
    pytest.importorskip("snorkel")
    data = pd.DataFrame(
        {"id": [str(i) for i in range(20)], "text": ["http win", "I love it"] * 10, "n words": range(20)}
    )
    data.to_csv(tmp_path / "data.csv", index=False)
    pd.DataFrame({"id": data["id"], "label": ["zspam", "ham"] * 10}).head(8).to_csv(tmp_path / "gold.csv", index=False)
    own = SNORKEL.replace("CLASSES =", "OTHER =").replace('x["n words"] >= 3', "False")
    path = file_of(tmp_path, own.replace("HAM, SPAM, ABSTAIN = 0, 1, -1", "HAM, SPAM, ABSTAIN = 1, 0, -1"))
    given = Given(trusted=(tmp_path / "gold.csv",), functions=(path,))
    with pytest.raises(InvalidInputError, match="name the classes in their order"):
        look([tmp_path / "data.csv"], given)  # the alphabetical order would turn every vote around
    looked = look([tmp_path / "data.csv"], replace(given, classes=("zspam", "ham")))
    assert isinstance(looked.content, Raw)
    votes = looked.content.votes
    assert set(votes.loc[votes["source"] == "sells", "label"]) == {"zspam"}
    assert set(votes.loc[votes["source"] == "loves", "label"]) == {"ham"}
