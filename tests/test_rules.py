"""Rules without code: files, votes, facts."""

import json
import re
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from labelchef.base.errors import InvalidInputError
from labelchef.believe.patterns import PatternTimeError, search_patterns
from labelchef.believe.rules import (
    Dictionary,
    Keyword,
    Model,
    Regex,
    Rule,
    RuleBoard,
    Threshold,
    apply_rules,
    facts_of,
    read_rules,
    rule_of,
    rule_values,
    rules_as_text,
    rules_of_text,
)
from labelchef.believe.searching import TextColumn, fold

FRAME = pd.DataFrame(
    {
        "id": ["007", "8", "9", "10", "11"],
        "text": ["Subscribe to my channel", "I love it", "WINDOW of the soul", None, "check  out http://x.y :)"],
        "length": ["23", "9", "18", "", "many"],
        "old": ["1", "0", "0", "1", None],
        "p": [0.9, 0.6, 0.95, 0.2, 0.8],
    }
)


def items(rule: Rule) -> list[str]:
    return apply_rules([rule], FRAME)["item"].tolist()


def test_every_kind_of_rule_votes_where_it_should() -> None:
    assert items(Keyword("k", "text", "spam", ("subscribe", "window"))) == ["007", "9"]
    assert items(Keyword("k", "text", "spam", ("win",))) == []
    assert items(Keyword("k", "text", "spam", ("win",), whole_word=False)) == ["9"]
    assert items(Keyword("k", "text", "spam", ("window",), match_case=True)) == []
    assert items(Keyword("k", "text", "spam", ("my channel", ":)"))) == ["007", "11"]
    assert items(Keyword("k", "text", "spam", ("my", "the"), unless=("soul",))) == ["007"]
    assert items(Regex("r", "text", "spam", r"https?://\S+")) == ["11"]
    assert items(Regex("r", "text", "spam", "^i")) == ["8"]
    assert items(Regex("r", "text", "spam", "^i", match_case=True)) == []
    assert items(Regex("r", "text", "spam", ".*")) == ["007", "8", "9", "11"]  # nothing in an empty cell
    assert items(Dictionary("d", "text", "ham", ("love", "it", "soul"), at_least=2)) == ["8"]
    assert items(Threshold("t", "length", "ham", at_least=9, below=23)) == ["8", "9"]
    assert items(Threshold("t", "length", "ham", above=9)) == ["007", "9"]
    model = apply_rules([Model("m", "old", (("1", "spam"), ("0", "ham")), "p", 0.7)], FRAME)
    assert model.values.tolist() == [["007", "m", "spam"], ["9", "m", "ham"]]
    assert apply_rules([Model("m", "old", (("1", "spam"),))], FRAME)["item"].tolist() == ["007", "10"]
    assert apply_rules([Model("m", "old")], FRAME)["label"].tolist() == ["1", "0", "0", "1"]


def test_votes_are_text_and_empty_without_rules() -> None:
    for rules in ([], [Keyword("k", "text", "spam", ("nothing of this",))]):
        votes = apply_rules(rules, FRAME)
        assert votes.columns.tolist() == ["item", "source", "label"]
        assert len(votes) == 0
        assert {str(kind) for kind in votes.dtypes} == {"str"}


TEXTS = st.lists(st.text(alphabet="abAB_1 .:-ßéÉ\u0301\n\0İ", max_size=12), max_size=8)
WORDS = st.lists(st.text(alphabet="abAB_1 .:-ßéİ", min_size=1, max_size=4), min_size=1, max_size=4)


@given(texts=TEXTS, words=WORDS, whole=st.booleans(), case=st.booleans())
def test_words_are_found_as_a_regular_expression_would(
    texts: list[str], words: list[str], whole: bool, case: bool
) -> None:
    def naive(text: str, word: str) -> bool:
        before = r"(?<!\w)" if whole and re.match(r"\w", word) else ""
        after = r"(?!\w)" if whole and re.match(r"\w", word[-1]) else ""
        return re.search(f"{before}{re.escape(word)}{after}", text) is not None

    folded = {fold(word, match_case=case) for word in words}
    expected = [sum(naive(fold(text, match_case=case).replace("\0", " "), word) for word in folded) for text in texts]
    assert TextColumn(texts).having(words, whole_word=whole, match_case=case).tolist() == expected


NAMES = st.text(min_size=1, max_size=8).filter(lambda text: bool(text.strip()))
NUMBERS = st.floats(-1e300, 1e300)


@st.composite
def any_rule(draw: st.DrawFn) -> Rule:
    name, column, label = draw(NAMES), draw(NAMES), draw(NAMES)
    words = tuple(draw(st.lists(NAMES, min_size=1, max_size=4)))
    kinds: list[Rule] = [
        Keyword(
            name,
            column,
            label,
            words,
            tuple(draw(st.lists(NAMES, max_size=2))),
            draw(st.booleans()),
            draw(st.booleans()),
        ),
        Regex(name, column, label, re.escape(draw(NAMES)) + r"\d'", draw(st.booleans())),
        Dictionary(name, column, label, words, at_least=draw(st.integers(1, 9)), match_case=draw(st.booleans())),
        Threshold(name, column, label, at_least=draw(NUMBERS), below=draw(st.none() | NUMBERS)),
        Model(name, column, tuple(draw(st.dictionaries(NAMES, NAMES, max_size=3)).items())),
        Model(name, column, (), draw(NAMES), draw(st.floats(0, 1))),
    ]
    return draw(st.sampled_from(kinds))


@given(rules=st.lists(any_rule(), max_size=5, unique_by=lambda rule: rule.name), as_json=st.booleans())
def test_rules_are_written_and_read_without_loss(rules: list[Rule], as_json: bool) -> None:
    text = rules_as_text(rules, json_form=as_json)
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate is no text of a file
        return
    assert rules_of_text(text, json_form=as_json) == tuple(rules)
    assert [rule_of(rule_values(rule)) for rule in rules] == rules


def test_a_file_with_a_word_list_is_read_and_written_back(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("# from the web\nfree\n\n check out \nfree\n", encoding="utf-8")
    path = tmp_path / "rules.toml"
    path.write_text(
        '[[rules]]\nname="d"\nkind="dictionary"\ncolumn="text"\nlabel="spam"\nfile="words.txt"\n', encoding="utf-8-sig"
    )
    rules = read_rules(path)
    assert rules == (Dictionary("d", "text", "spam", ("free", "check out"), "words.txt"),)
    path.write_text(rules_as_text(rules), encoding="utf-8")
    assert read_rules(path) == rules
    (tmp_path / "rules.json").write_text(rules_as_text(rules, json_form=True), encoding="utf-8")
    assert read_rules(tmp_path / "rules.json") == rules
    with pytest.raises(InvalidInputError, match="cannot be read here"):
        rules_of_text(path.read_text(encoding="utf-8"))


TABLE = '[[rules]]\nname="r"\nkind="keyword"\ncolumn="text"\nlabel="spam"\nwords=["win"]\n'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[rules]", "no valid TOML"),
        ("rules = 3", "expected a list of rules"),
        (f"{TABLE}\n[other]", "'other' is not known"),
        (TABLE.replace('name="r"', ""), "rule 1 has no name"),
        (TABLE.replace("keyword", "keywords"), "kind is 'keywords'; expected one of keyword, regex"),
        (TABLE.replace("words=", "word="), "'word' is not known; did you mean words"),
        (TABLE.replace('words=["win"]', ""), "words is missing; a keyword rule needs name, column, label, words"),
        (TABLE.replace('["win"]', "[]"), "it has no words"),
        (TABLE.replace('["win"]', '["win", " "]'), "one of its words is empty"),
        (TABLE.replace('["win"]', "[1]"), "expected a list of texts"),
        (TABLE.replace('"spam"', "1"), "label is 1; expected a text"),
        (f"{TABLE}match_case=1", "match_case is 1; expected true or false"),
        (f"{TABLE}\n{TABLE}", "2 rules are called 'r'"),
        (TABLE.replace("keyword", "regex").replace('words=["win"]', "pattern='a(b'"), r"missing \), .* at character 2"),
        (TABLE.replace("keyword", "regex").replace('words=["win"]', f"pattern='{'a' * 1001}'"), "1001 characters"),
        (TABLE.replace("keyword", "regex").replace('words=["win"]', "pattern='a{99999999999}'"), "cannot be used"),
        (TABLE.replace("keyword", "threshold").replace('words=["win"]', ""), "it has no bound"),
        (TABLE.replace("keyword", "threshold").replace('words=["win"]', "above=nan"), "expected finite numbers"),
        (TABLE.replace("keyword", "threshold").replace('words=["win"]', f"above=1{'0' * 400}"), "expected a number up to"),
        (TABLE.replace("keyword", "threshold").replace('words=["win"]', 'above="3"'), "expected a number"),
        (TABLE.replace("keyword", "dictionary").replace('words=["win"]', 'file="../w.txt"'), "outside of the folder"),
        (TABLE.replace("keyword", "dictionary").replace('words=["win"]', 'file="w.txt"'), "cannot be read: No such file"),
        (TABLE.replace("keyword", "dictionary") + 'file="w.txt"', "words and a file"),
        (TABLE.replace("keyword", "dictionary") + "at_least=0", "at_least is 0"),
        (TABLE.replace("keyword", "model").replace('words=["win"]', ""), "'label' is not known; a model rule has"),
        ('[[rules]]\nname="m"\nkind="model"\ncolumn="old"\nprobability="p"', "go together"),
        ('[[rules]]\nname="m"\nkind="model"\ncolumn="old"\nprobability="p"\nat_least=2', "a probability from 0 to 1"),
        ('[[rules]]\nname="m"\nkind="model"\ncolumn="old"\nmap={a=1}', "expected a table such as"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_with_the_reason(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInputError, match=why) as caught:
        read_rules(path)
    assert str(path) in str(caught.value)


def test_files_that_are_no_text_or_not_there_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInputError, match="no UTF-8 text"):
        read_rules(tmp_path / "rules.toml")
    (tmp_path / "rules.json").write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(InvalidInputError, match="no valid JSON"):
        read_rules(tmp_path / "rules.json")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        read_rules(tmp_path / "none.toml")


@given(data=st.data())
def test_mutated_files_are_read_or_refused(data: st.DataObject) -> None:
    as_json = data.draw(st.booleans())
    rules: list[Rule] = [
        Keyword("k", "text", "spam", ("a", "b"), unless=("c",)),
        Regex("r", "text", "spam", r"a\d+"),
        Threshold("t", "n", "ham", at_least=1.5),
        Model("m", "old", (("1", "spam"),), "p", 0.5),
    ]
    text = list(rules_as_text(rules, json_form=as_json))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at] = data.draw(st.sampled_from(["", '"', "\n", "=", "[", "]", "{", "(", "*", "9", "\0", "é", "true"]))
    try:
        found = rules_of_text("".join(text), json_form=as_json)
    except InvalidInputError:
        return
    assert rules_of_text(rules_as_text(found)) == found


def test_a_pattern_that_tries_without_end_elsewhere_is_searched_in_linear_time() -> None:
    frame = pd.DataFrame({"id": ["1", "2"], "text": ["a" * 50_000 + "!", "words of a text k"]})
    facts = facts_of(
        [Regex("nested", "text", "spam", "(a+)+$"), Regex("words", "text", "spam", "([a-z ]+)+[!k]$")],
        frame,
        [None, None],
    )
    assert [one.n_votes for one in facts.rules] == [0, 2]


def test_a_pattern_that_takes_too_long_is_stopped_named_and_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame({"id": ["1", "2"], "text": ["aaa", "b"]})
    slow, word = Regex("slow", "text", "spam", "a+$"), Keyword("word", "text", "spam", ("b",))
    board = RuleBoard(frame, seconds=-1)
    with pytest.raises(
        PatternTimeError, match=r"rule 'slow': the pattern 'a\+\$' takes more than -1 seconds on 2 texts"
    ):
        apply_rules([slow], frame, board=board)
    monkeypatch.setattr("labelchef.believe.rules.search_patterns", None)
    facts = facts_of([word, slow], frame, [None, None], board=board)
    assert [one.n_votes for one in facts.rules] == [1, 0]
    assert "takes more than" in str(facts.rules[1].problem)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"(a)\1", r"refers back to a group.*write the repeated text"),
        ("(?=a)b", "looks ahead or behind.*write what has to stand there"),
        ("(?<!a)b", "looks ahead or behind.*use a keyword rule with `unless`"),
        ("(?>a)b", r"use \(\?:…\)"),
        ("a++", r"use a\+"),
        ("(a)(?(1)b|c)", r"write both cases with \|"),
        ("((a{100}){100})", "at most 1000 times"),
        (r"[a-z]{900}(\w\W){1000}(é|b){800}" * 3, "at most 5000 are searched"),
        ("".join(map(chr, range(0x4E00, 0x4E00 + 300))), "too many different characters; use a dictionary"),
    ],
)
def test_what_linear_time_does_not_allow_is_refused_with_what_to_write_instead(pattern: str, why: str) -> None:
    with pytest.raises(InvalidInputError, match=why) as refused:
        Regex("one", "text", "spam", pattern)
    assert refused.value.code == "rule_pattern"


_SOME = [
    "a", "b", "é", "S", "k", "я", "垃", "[a-c]", "[^b]", r"\w", r"\W", r"\d", r"\s", r"[\W_]", r"[^\w\s]", ".", "[а-я]", "(?i:S)",
    "(?s:.)",
]  # fmt: skip
_PARTS = st.recursive(
    st.sampled_from([*_SOME, r"\b", r"\B", "^", r"\A", r"\Z", "(?m:^)", "(?m:$)"]),
    lambda part: st.one_of(
        st.lists(part, min_size=1, max_size=4).map("".join),
        st.tuples(part, part).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(st.sampled_from(_SOME), st.sampled_from(["*", "+?", "?", "{1,3}"])).map("".join),
    ),
    max_leaves=8,
)


@given(
    _PARTS, st.booleans(), st.lists(st.text("aabcSsſkKéÉßя Я1_\n.垃İ", min_size=1, max_size=9), min_size=1, max_size=9)
)
def test_patterns_match_where_those_of_python_do(pattern: str, match_case: bool, texts: list[str]) -> None:
    searched = re.compile(pattern, 0 if match_case else re.IGNORECASE)
    expected = [list(found.span()) if (found := searched.search(text)) else [-1, -1] for text in texts]
    assert next(search_patterns([(pattern, match_case)], texts)).tolist() == expected


def test_patterns_of_a_large_column_and_of_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labelchef.believe.patterns._CHUNK", 10_000)
    texts = [f"row {i} ∑" for i in range(30_000)]
    found = list(search_patterns([("row 7$", True), (r"9 ∑", True), ("ROW", True)], texts))
    assert [int((spans[:, 0] >= 0).sum()) for spans in found] == [0, 3000, 0]
    assert found[1][9].tolist() == [4, 7]
    assert [spans.shape for spans in search_patterns([("a", True)], [])] == [(0, 2)]
    assert [spans.tolist() for spans in search_patterns([("a$", True)], ["", "a\n"])] == [[[-1, -1], [0, 2]]]


def test_facts_against_counting_by_hand(rng: np.random.Generator) -> None:
    words = np.array(["red", "green", "blue", "Big", "small"])
    texts = [" ".join(rng.choice(words, size=rng.integers(0, 4))) for _ in range(200)]
    labels = [str(one) if rng.random() < 0.3 else None for one in rng.choice(["x", "y", "z"], 200)]
    said = rng.choice(["x", "y", ""], 200)
    frame = pd.DataFrame({"id": [str(i) for i in range(200)], "text": texts, "old": said, "n": [len(t) for t in texts]})
    rules: list[Rule] = [
        Keyword("k", "text", "x", ("red", "big")),
        Regex("r", "text", "y", "gr?e+n"),
        Threshold("t", "n", "z", at_least=12),
        Model("m", "old"),
    ]
    votes = apply_rules(rules, frame).pivot_table(index="item", columns="source", values="label", aggfunc="first")
    votes = votes.reindex(frame["id"])
    facts = facts_of(rules, frame, labels)
    truth = pd.Series(labels, index=frame["id"], dtype="str")
    shares = truth.dropna().value_counts(normalize=True)
    for one in facts.rules:
        mine = votes[one.name].dropna()
        others = votes.drop(columns=one.name).loc[mine.index]
        differs = others.notna() & others.ne(mine, axis=0)
        known = truth[mine.index].dropna()
        assert one.n_votes == len(mine)
        assert one.labels == mine.value_counts().to_dict()
        assert one.n_overlaps == int(others.notna().any(axis=1).sum())
        assert one.n_conflicts == int(differs.any(axis=1).sum())
        assert one.n_trusted == len(known)
        assert one.n_right == int((known == mine[known.index]).sum())
        exact = binomtest(one.n_right, len(known)).proportion_ci(method="exact") if len(known) else (0.0, 1.0)
        assert one.interval == pytest.approx(tuple(exact))
        assert one.chance == pytest.approx(float(mine.map(shares).mean()))
        assert {example.item for example in one.examples} <= set(mine.index)
        assert all(example.truth is not None and example.truth != example.label for example in one.mistakes)
    assert facts.n_covered == int(votes.notna().any(axis=1).sum())
    assert facts.n_conflicts == sum(len(set(row.dropna())) > 1 for _, row in votes.iterrows())
    modes = [row.dropna().mode() for _, row in votes.iterrows()]
    clear = [(mode.iloc[0], label) for mode, label in zip(modes, labels, strict=True) if len(mode) == 1 and label]
    assert (facts.n_trusted, facts.n_right) == (len(clear), sum(a == b for a, b in clear))


def test_examples_show_where_a_rule_matches() -> None:
    text = "x" * 300 + " Winner takes it"
    frame = pd.DataFrame({"id": ["1", "2"], "text": [text, "a winner"]})
    rules: list[Rule] = [
        Keyword("k", "text", "spam", ("winner",)),
        Regex("r", "text", "spam", "win+er"),
        Keyword("none", "text", "y", ("q",)),
    ]
    facts = facts_of(rules, frame, ["spam", "ham"])
    for one in facts.rules[:2]:
        for example in one.examples:
            assert example.span is not None
            assert example.text[slice(*example.span)].lower() == "winner"
        assert one.examples[0].text.startswith("…")
        assert [example.item for example in one.mistakes] == ["2"]
    assert facts.rules[2].n_votes == 0
    assert facts.rules[2].accuracy is None
    assert facts.rules[2].chance is None


def test_problems_of_a_rule_do_not_stop_the_others() -> None:
    rules: list[Rule] = [
        Keyword("typo", "txt", "spam", ("a",)),
        Regex("typo 2", "txt", "spam", "a"),
        Model("p", "old", (), "q", 0.5),
        Threshold("numbers", "length", "spam", above=1),
        Keyword("fine", "text", "spam", ("love",)),
    ]
    facts = facts_of(rules, FRAME, [None] * 5)
    assert "there is no column 'txt'; did you mean 'text'?" in str(facts.rules[0].problem)
    assert "there is no column 'txt'" in str(facts.rules[1].problem)
    assert "there is no column 'q'" in str(facts.rules[2].problem)
    assert facts.rules[3].unreadable == 1
    assert facts.rules[4].n_votes == 1
    with pytest.raises(InvalidInputError, match="there is no column"):
        apply_rules(rules, FRAME)
    with pytest.raises(InvalidInputError, match="4 labels for 5 rows"):
        facts_of(rules, FRAME, [None] * 4)
    with pytest.raises(InvalidInputError, match="no column 'id'"):
        RuleBoard(FRAME.drop(columns="id"))
    many = pd.DataFrame({"id": map(str, range(2000)), "old": map(str, range(2000))})
    assert "2000 different values" in str(facts_of([Model("m", "old")], many, [None] * 2000).rules[0].problem)


def test_a_renamed_rule_is_not_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    board = RuleBoard(FRAME)
    rule = Regex("a", "text", "spam", "o")
    apply_rules([rule], FRAME, board=board)
    monkeypatch.setattr("labelchef.believe.rules.search_patterns", None)
    votes = apply_rules([replace(rule, name="b", label="ham")], FRAME, board=board)
    assert set(votes["source"]) == {"b"}
    assert set(votes["label"]) == {"ham"}


@pytest.mark.slow
def test_facts_of_100_000_texts_are_quick(rng: np.random.Generator) -> None:
    words = np.array([f"word{i}" for i in range(5000)])
    texts = [" ".join(row) for row in words[rng.integers(0, 5000, (100_000, 12))]]
    frame = pd.DataFrame({"id": [str(i) for i in range(len(texts))], "text": texts})
    labels: list[str | None] = ["spam", None] * 50_000
    board = RuleBoard(frame)
    rules: list[Rule] = [Dictionary("d", "text", "spam", tuple(words[:2000]), at_least=6)]
    facts_of(rules, frame, labels, board=board)
    for rule in (Keyword("k", "text", "ham", ("word77",)), Keyword("p", "text", "ham", ("rd42 ",), whole_word=False)):
        rules.append(rule)
        started = time.perf_counter()
        facts_of(rules, frame, labels, board=board)
        assert time.perf_counter() - started < 2  # about 0.1 s where nothing else runs


def test_json_may_be_a_bare_list() -> None:
    values = [rule_values(Keyword("k", "text", "spam", ("a",)))]
    assert rules_of_text(json.dumps(values), json_form=True) == (Keyword("k", "text", "spam", ("a",)),)
