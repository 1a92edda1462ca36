"""Labels by LLMs: files, answers, and the runner against a real HTTP server."""

import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelchef.base.errors import InvalidInputError
from labelchef.base.intake import FileRole
from labelchef.believe import asking
from labelchef.believe.asking import Asked, Endpoint, Limits, ask, estimate
from labelchef.believe.llm import (
    LabelRequest,
    Token,
    contents_of,
    looks_like_llm_labels,
    read_answer,
    read_llm_labels,
    read_request,
    token_probabilities,
)
from labelchef.data.intake.detecting import Given
from labelchef.data.intake.raw import Raw
from labelchef.server.intake.starting import look
from tests.commands import commands
from tests.llm_server import LlmServer, Said, Seen, completion, error, label_of, right, serving

REQUEST = LabelRequest({"ham": "talk", "spam": "advertising"})
QUICK = Limits(backoff=0.01)


def rows(n: int) -> pd.DataFrame:
    return pd.DataFrame(
        {"id": [f"{i:03}" for i in range(n)], "text": [f"{'win' if i % 3 == 0 else 'hello'} {i}" for i in range(n)]}
    )


def run(
    server: LlmServer, folder: Path, frame: pd.DataFrame | None = None, limits: Limits = QUICK, **others: Any
) -> Asked:
    key = others.pop("key", None)
    request = others.pop("request", REQUEST)
    endpoint = Endpoint(server.url, "tiny", key=key, timeout=others.pop("timeout", 5.0))
    frame = rows(10) if frame is None else frame
    return ask(request, frame, ["text"], endpoint, folder / "cache.jsonl", limits=limits, **others)


def expected(n: int) -> dict[str, str]:
    return {f"{i:03}": "spam" if i % 3 == 0 else "ham" for i in range(n)}


def labels(asked: Asked) -> dict[str, str | None]:
    return {item: reply.answer.label for item, reply in asked.items}


# --- the runner ---


def test_right_answers_become_votes_and_a_file(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    with serving(right) as server:
        asked = run(server, tmp_path, progress=lambda *what: told.append(what))
    assert labels(asked) == expected(10)
    assert (asked.n_asked, asked.n_kept, asked.n_left, asked.stopped, dict(asked.failures)) == (10, 0, 0, None, {})
    assert told[-1] == ("asking the LLM", 10, 10)
    request = server.seen[0]
    assert request.path == "/v1/chat/completions"
    assert request.key is None
    assert request.body["response_format"]["json_schema"]["schema"]["properties"]["label"]["enum"] == ["ham", "spam"]
    assert (request.body["temperature"], request.body["model"]) == (0, "tiny")
    asked.write(tmp_path / "llm.jsonl")
    read = read_llm_labels(tmp_path / "llm.jsonl")
    pd.testing.assert_frame_equal(read.votes, asked.votes)
    assert dict(zip(read.votes["item"], read.votes["label"], strict=True)) == expected(10)
    assert set(read.votes["source"]) == {"tiny"}


def test_equal_rows_are_asked_once_and_answers_are_kept(tmp_path: Path) -> None:
    frame = pd.DataFrame({"id": ["a", "b", "c"], "text": ["win", "win", None]})
    with serving(right) as server:
        asked = run(server, tmp_path, frame)
        assert labels(asked) == {"a": "spam", "b": "spam", "c": "ham"}
        assert (len(server.seen), asked.n_asked, asked.n_kept) == (2, 2, 1)
        again = run(server, tmp_path, frame)
        assert (len(server.seen), again.n_asked, again.n_kept) == (2, 0, 3)
        assert labels(again) == labels(asked)
        run(server, tmp_path, frame, request=LabelRequest({"ham": "", "spam": ""}))  # another question
        assert len(server.seen) == 4


def first_fails(said: Said, times: int = 1) -> Any:
    """Every question is answered badly so often, then rightly."""
    asked: dict[str, int] = {}
    lock = threading.Lock()

    def reply(seen: Seen) -> Said:
        with lock:
            asked[seen.content] = asked.get(seen.content, 0) + 1
            return said if asked[seen.content] <= times else right(seen)

    return reply


@pytest.mark.parametrize(
    "said",
    [
        error(500),
        error(503),
        error(529),
        error(429, retry_after="0.05"),
        error(429),
        error(503, retry_after="Thu, 01 Jan 1970 00:00:00 GMT"),
        Said(b"<html>bad gateway</html>", 502),
        Said(b"this is no JSON"),
        Said(b"[]"),
        Said(b'{"choices": []}'),
        Said(b'{"choices": [{"message": {"content": 7}}]}'),
        Said(b'{"error": {"message": "overloaded"}}'),
        Said(b'{"choices": [{"message": {"content": "{\\"label\\": \\"ham\\"}"}}]}', cut=True),
        Said(b"{}", slow=0.6),
    ],
)
def test_what_passes_is_tried_again(tmp_path: Path, said: Said) -> None:
    with serving(first_fails(said, times=2)) as server:
        asked = run(server, tmp_path, rows(4), timeout=0.3)
    assert labels(asked) == expected(4)
    assert len(server.seen) == 12
    assert dict(asked.failures) == {}


def test_a_server_that_is_gone_ends_the_run_after_a_few_questions(tmp_path: Path) -> None:
    with serving(right) as server:
        url = server.url
    endpoint = Endpoint(url, "tiny", timeout=2)
    limits = Limits(backoff=0.001, attempts=2, max_cost=1, price_in=1, price_out=1)
    asked = ask(REQUEST, rows(50), ["text"], endpoint, tmp_path / "c.jsonl", limits=limits)
    assert asked.n_left == 50
    assert str(asked.stopped).startswith("5 questions in a row got no answer; the last: ConnectError")
    assert asked.cost == 0  # nothing was sent


def test_retry_after_holds_up_everybody(tmp_path: Path) -> None:
    with serving(first_fails(error(429, retry_after="0.4"))) as server:
        asked = run(server, tmp_path, rows(4), Limits(backoff=0.0, concurrency=1))
    times = [seen.at for seen in server.seen]
    assert len(times) == 8
    assert all(times[k + 1] - times[k] >= 0.38 for k in range(0, 8, 2))
    assert labels(asked) == expected(4)


def test_a_long_retry_after_ends_the_run(tmp_path: Path) -> None:
    with serving(lambda _: error(429, retry_after="86400")) as server:
        asked = run(server, tmp_path)
    assert asked.stopped == "the endpoint asks to wait 86400 seconds; run the command again then"
    assert asked.n_left == 10


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (error(401, "bad key sk-secret"), r"401: bad key \*\*\*; is the key right"),
        (error(404, "no such model"), "404: no such model"),
        (error(307, "moved", location="http://127.0.0.1:1/"), "refuses: 307"),
        (Said(b'{"error": {"message": "pay first", "code": "insufficient_quota"}}', 429), "429: pay first"),
    ],
)
def test_refusals_end_the_run_at_once_and_do_not_show_the_key(tmp_path: Path, said: Said, why: str) -> None:
    with serving(lambda _: said) as server:
        asked = run(server, tmp_path, key="sk-secret", limits=Limits(concurrency=1))
    assert len(server.seen) == 1
    assert server.seen[0].key == "Bearer sk-secret"
    assert asked.stopped is not None
    assert re.search(why, asked.stopped)
    assert "sk-secret" not in (tmp_path / "cache.jsonl").read_text() + repr(
        Endpoint("http://x", "m", "sk-secret")
    ) + repr(asked)


def test_fewer_demands_where_the_server_knows_less(tmp_path: Path) -> None:
    def plain(seen: Seen) -> Said:
        if "logprobs" in seen.body:
            return error(400, "logprobs are not supported")
        if "response_format" in seen.body:
            return error(422, "response_format: unknown field")
        return completion(f"The class is: {label_of(seen).upper()}.")

    with serving(plain) as server:
        asked = run(server, tmp_path)
    assert labels(asked) == expected(10)
    assert len(server.seen) <= 10 + 2 * 4  # each of the four workers may have found out by itself


def test_names_of_options_follow_the_server(tmp_path: Path) -> None:
    def modern(seen: Seen) -> Said:
        if "max_tokens" in seen.body:
            return error(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
        if "temperature" in seen.body:
            return error(400, "'temperature' does not support 0 with this model.")
        return right(seen)

    with serving(modern) as server:
        asked = run(server, tmp_path)
    assert labels(asked) == expected(10)
    assert server.seen[-1].body["max_completion_tokens"] == 100
    assert "logprobs" in server.seen[-1].body


def test_one_question_that_is_refused_does_not_stop_the_others(tmp_path: Path) -> None:
    def picky(seen: Seen) -> Said:
        return error(400, "the context is too long") if seen.content.endswith(" 0") else right(seen)

    with serving(picky) as server:
        asked = run(server, tmp_path, limits=Limits(backoff=0.01, concurrency=1))
    assert asked.n_left == 1
    assert dict(asked.failures) == {"400: the context is too long": 1}
    assert "logprobs" in server.seen[-1].body
    assert asked.stopped is None


def test_answers_that_name_no_class_are_kept_apart(tmp_path: Path) -> None:
    def poor(seen: Seen) -> Said:
        k = int(seen.content.split()[1])
        return [
            completion('{"label": "egg"}'),
            completion("I cannot say."),
            completion(None, message={"refusal": "I must not"}),
            completion('{"label": "sp', finish_reason="length"),
            completion("either ham or spam"),
        ][k]

    with serving(poor) as server:
        asked = run(server, tmp_path, rows(5))
        assert [problem for _, problem in asked.unusable] == [
            "the answer's label is no class: 'egg'",
            "the answer names no class: 'I cannot say.'",
            "the model refused: 'I must not'",
            'the answer was cut off after 100 tokens: \'{"label": "sp\'',
            "the answer names several classes: 'either ham or spam'",
        ]
        assert len(asked.votes) == 0
        asked.write(tmp_path / "llm.jsonl")
        assert read_llm_labels(tmp_path / "llm.jsonl").n_without == 5
        run(server, tmp_path, rows(5))
        assert len(server.seen) == 5
        server.reply = right
        again = run(server, tmp_path, rows(5), ask_again=True)
        assert labels(again) == expected(5)


def test_log_probabilities_become_soft_votes(tmp_path: Path) -> None:
    def soft(seen: Seen) -> Said:
        p = 0.9 if "win" in seen.content else 0.2
        label = label_of(seen)
        others = [("spam", p), ("ham", 0.95 - p), ("egg", 0.05)]
        at = {"token": label, "logprob": math.log(dict(others)[label])}
        at["top_logprobs"] = [{"token": name, "logprob": math.log(q)} for name, q in others]
        tokens: list[dict[str, Any]] = [
            {"token": text, "logprob": 0.0, "top_logprobs": []} for text in ('{"', "label", '":', ' "')
        ]
        return completion(
            json.dumps({"label": label}), logprobs={"content": [*tokens, at, {"token": '"}', "logprob": 0.0}]}
        )

    with serving(soft) as server:
        asked = run(server, tmp_path, rows(2))
        again = run(server, tmp_path, rows(2))
    assert len(server.seen) == 2
    for one in (asked, again):
        votes = one.votes.set_index(["item", "label"])["probability"]
        assert votes["000", "spam"] == pytest.approx(0.9 / 0.95)
        one.write(tmp_path / "llm.jsonl")
        read = read_llm_labels(tmp_path / "llm.jsonl")
        pd.testing.assert_frame_equal(read.votes, one.votes)
        assert (read.n_lines, read.n_averaged) == (4, 0)
        assert votes["001", "spam"] == pytest.approx(0.2 / 0.95)
        assert votes.groupby("item").sum().to_numpy() == pytest.approx(1.0)


def test_the_rate_is_kept(tmp_path: Path) -> None:
    with serving(right) as server:
        run(server, tmp_path, rows(6), Limits(rate=1200, concurrency=4))
    times = sorted(seen.at for seen in server.seen)
    assert times[-1] - times[0] >= 5 * 0.05 - 0.03


def test_so_many_requests_at_once(tmp_path: Path) -> None:
    def slowly(seen: Seen) -> Said:
        said = right(seen)
        said.slow = 0.05
        return said

    with serving(slowly) as server:
        run(server, tmp_path, rows(12), Limits(concurrency=3))
    assert server.most_at_once == 3


# --- cost ---

PRICED = Limits(backoff=0.01, price_in=1000, price_out=2000, max_tokens=20, concurrency=4)


def test_the_ceiling_is_never_passed_and_counts_for_all_runs(tmp_path: Path) -> None:
    def priced(max_cost: float) -> Limits:
        return Limits(backoff=0.01, price_in=1000, price_out=2000, max_tokens=20, max_cost=max_cost)

    one = (50 * 1000 + 10 * 2000) / 1e6
    with serving(right) as server:
        asked = run(server, tmp_path, rows(100), priced(3.0))
        assert asked.stopped is not None
        assert "raise --max-cost" in asked.stopped
        assert 0 < asked.n_asked < 100
        assert asked.cost == pytest.approx(one * asked.n_asked)
        assert asked.spent <= 3.0
        sent = len(server.seen)
        again = run(server, tmp_path, rows(100), priced(3.0))
        assert len(server.seen) == sent  # nothing is left of the ceiling
        assert again.cost == 0
        more = run(server, tmp_path, rows(100), priced(4.0))
        assert more.spent == pytest.approx(one * len(server.seen))
        assert asked.spent < more.spent <= 4.0


@settings(max_examples=15)
@given(max_cost=st.floats(0.5, 6.0), concurrency=st.integers(1, 6), usage=st.integers(1, 400))
def test_the_ceiling_holds_whatever_is_used(
    tmp_path_factory: Any, max_cost: float, concurrency: int, usage: int
) -> None:
    folder = tmp_path_factory.mktemp("cost")
    limits = Limits(price_in=1000, price_out=2000, max_tokens=20, max_cost=max_cost, concurrency=concurrency)
    with serving(lambda seen: completion(json.dumps({"label": "ham"}), usage=(usage, 20))) as server:
        asked = run(server, folder, rows(8), limits)
    assert asked.spent == pytest.approx(len(server.seen) * (usage * 1000 + 40_000) / 1e6)
    assert asked.spent <= max_cost


def test_lost_requests_and_unreported_usage_count_with_their_bound(tmp_path: Path) -> None:
    with serving(first_fails(Said(b"{}", slow=0.4))) as server:
        asked = run(server, tmp_path, rows(1), PRICED, timeout=0.2)
    (request,) = {json.dumps(seen.body) for seen in server.seen}
    bound = PRICED.cost(len(request) + asking.OVERHEAD, PRICED.max_tokens)
    one = PRICED.cost(50, 10)
    assert asked.cost == pytest.approx(one + bound, rel=0.02)
    with serving(lambda _: completion('{"label": "ham"}', usage=None)) as server:
        asked = run(server, tmp_path, rows(2), PRICED)
    assert asked.cost == pytest.approx(bound, rel=0.02)
    with serving(first_fails(error(500))) as server:
        assert run(server, tmp_path, rows(3), PRICED).cost == pytest.approx(one)  # an error is not billed


def test_an_estimate_asks_nothing_and_bounds_the_cost(tmp_path: Path) -> None:
    cache = tmp_path / "cache.jsonl"
    before = estimate(REQUEST, rows(10), ["text"], "tiny", cache, PRICED)
    assert (before.n_questions, before.n_kept) == (10, 0)
    assert not cache.exists()
    with serving(right) as server:
        asked = run(server, tmp_path, rows(6), PRICED)
    assert asked.cost < before.at_most
    after = estimate(REQUEST, rows(10), ["text"], "tiny", cache, PRICED)
    assert (after.n_questions, after.n_kept) == (4, 6)
    assert "- spam: advertising" in after.example


# --- interruption ---


def test_an_interrupt_keeps_what_is_under_way(tmp_path: Path) -> None:
    def slowly(seen: Seen) -> Said:
        said = right(seen)
        said.slow = 0.1
        return said

    def interrupt(what: str, done: int, total: int) -> None:
        if done >= 2:
            raise KeyboardInterrupt

    with serving(slowly) as server:
        asked = run(server, tmp_path, rows(40), Limits(concurrency=2), progress=interrupt)
        assert asked.stopped == "interrupted"
        assert 2 <= asked.n_asked == len(server.seen) < 20
        again = run(server, tmp_path, rows(40))
        assert len(server.seen) == 40
    assert labels(again) == expected(40)


def test_half_a_line_is_cut_off_and_damage_is_refused(tmp_path: Path) -> None:
    cache = tmp_path / "cache.jsonl"
    with serving(right) as server:
        run(server, tmp_path, rows(3), Limits(concurrency=1))
        cache.write_bytes(cache.read_bytes()[:-20])
        again = run(server, tmp_path, rows(3))
        assert len(server.seen) == 4
        assert labels(again) == expected(3)
        assert len(cache.read_text().splitlines()) == 3
        cache.write_text(cache.read_text().replace('"label"', '"lable"', 1))
        with pytest.raises(InvalidInputError, match=r"line 1 is no answer of an earlier run; name another cache"):
            run(server, tmp_path, rows(3))


def test_two_runs_do_not_share_a_cache(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    with (
        serving(right) as server,
        asking._Cache.opened(tmp_path / "cache.jsonl"),
        pytest.raises(InvalidInputError, match="another run uses the cache"),
    ):
        run(server, tmp_path)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Endpoint("ftp://host/v1", "m"), "http:// or https://"),
        (lambda: Endpoint("https://user:pw@host/v1", "m"), "environment variable"),
        (lambda: Endpoint("https://host/v1", " "), "no model"),
        (lambda: Limits(max_cost=1), "--price-in and --price-out"),
        (lambda: Limits(rate=0), "rate is 0"),
        (lambda: Limits(concurrency=0), "concurrency is 0"),
        (lambda: LabelRequest({"spam": ""}), "1 classes; expected 2"),
        (lambda: LabelRequest({"spam": "", "ham": ""}, template="no place"), "no {content}"),
        (lambda: contents_of(rows(1), ["txt"]), "no column 'txt'"),
    ],
)
def test_wrong_options_are_refused(make: Any, why: str) -> None:
    with pytest.raises(InvalidInputError, match=why) as caught:
        make()
    assert "pw" not in str(caught.value)


# --- answers ---


def tokens_of(text: str, cuts: list[int], p: list[float]) -> list[Token]:
    places = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    parts = [text[a:b] for a, b in itertools.pairwise(places)]
    return [Token(part.encode(), p[k % len(p)]) for k, part in enumerate(parts)]


@given(
    label=st.sampled_from(["a", "ab", "positive", "pos", "né"]),
    cuts=st.lists(st.integers(0, 30), max_size=8),
    p=st.lists(st.floats(0.1, 1), min_size=1, max_size=5),
    in_json=st.booleans(),
)
def test_tokens_without_alternatives_give_all_to_the_answer(
    label: str, cuts: list[int], p: list[float], in_json: bool
) -> None:
    text = json.dumps({"label": label}, ensure_ascii=False) if in_json else f"It is {label}."
    answer = read_answer(["a", "ab", "positive", "pos", "né"], text, tokens_of(text, cuts, p))
    assert answer.label == label
    if answer.probabilities is not None:
        assert answer.probabilities[label] == pytest.approx(1.0)


def test_probabilities_of_classes_that_share_tokens() -> None:
    written = {name: f'{name}"'.encode() for name in ("not spam", "not sure", "spam")}
    tokens = [
        Token(b'{"label": "', 1.0),
        Token(b"not", 0.7, ((b"sp", 0.2), (b"x", 0.1))),
        Token(b" sp", 0.6, ((b" sure", 0.4),)),
        Token(b'am"}', 1.0, ((b"an", 0.0),)),
    ]
    found = token_probabilities(written, "not spam", tokens, after_key=True)
    assert found is not None
    masses = np.array([0.7 * 0.6, 0.7 * 0.4, 0.2])
    assert [found[name] for name in written] == pytest.approx((masses / masses.sum()).tolist())
    # an alternative that two classes share is given to both in equal parts
    tokens = [Token(b'{"label": "', 1.0), Token(b"spam", 0.6, ((b"not", 0.4),)), Token(b'"}', 1.0)]
    found = token_probabilities(written, "spam", tokens, after_key=True)
    assert found == pytest.approx({"not spam": 0.2, "not sure": 0.2, "spam": 0.6})


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ('{"label": "ham"}', "ham"),
        ('```json\n{"label": "ham", "why": "friendly"}\n```', "ham"),
        ('{"label": " HAM "}', "ham"),
        ("ham", "ham"),
        (' "Ham". ', "ham"),
        ("not ham", "not ham"),
        ("The class: not ham, I think", "not ham"),
        ("hamster", None),
        ("", None),
        ('{"label": 3}', None),
        ('["ham"]', "ham"),
        ("{" * 5000, None),
    ],
)
def test_answers_are_read_or_not_understood(text: str, label: str | None) -> None:
    answer = read_answer(["ham", "not ham", "spam"], text)
    assert answer.label == label
    assert (answer.problem is None) == (label is not None)


@given(text=st.text(max_size=60), names=st.lists(st.text(min_size=1, max_size=6), min_size=2, max_size=4, unique=True))
def test_any_answer_is_read_without_an_error(text: str, names: list[str]) -> None:
    answer = read_answer(names, text, [Token(text.encode(errors="replace"), 0.5, ((b"x", 0.5),))])
    assert answer.label is None or answer.label in names


# --- files ---


def written(folder: Path, *lines: str) -> Path:
    path = folder / "gpt.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_every_form_of_a_line_is_read(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        '{"id": "007", "label": "spam"}',
        '{"item": 8, "label": "ham", "probability": 0.8, "model": "big"}',
        '{"id": "9", "probabilities": {"spam": 0.75, "ham": 0.25, "egg": 0}, "source": "big"}',
        '{"id": "10", "label": "ham", "logprobs": {"ham": -0.5, "spam": -1.5}}',
        '{"id": 1.50, "label": "ham", "logprob": -0.1}',
        "",
        '{"id": "12", "label": null, "problem": "refused"}',
    )
    read = read_llm_labels(path)
    found = {(one.item, one.source, one.label): one.probability for one in read.votes.itertuples()}
    odds = 1 / (1 + math.exp(-1))
    assert found == pytest.approx(
        {
            ("007", "gpt", "spam"): 1.0,
            ("8", "big", "ham"): 0.8,
            ("8", "big", "spam"): 0.1,
            ("8", "big", "egg"): 0.1,
            ("9", "big", "spam"): 0.75,
            ("9", "big", "ham"): 0.25,
            ("10", "gpt", "ham"): odds,
            ("10", "gpt", "spam"): 1 - odds,
            ("1.50", "gpt", "ham"): math.exp(-0.1),
            ("1.50", "gpt", "spam"): (1 - math.exp(-0.1)) / 2,
            ("1.50", "gpt", "egg"): (1 - math.exp(-0.1)) / 2,
        }
    )
    assert (read.n_lines, read.n_without, read.n_averaged) == (6, 1, 0)


def test_several_answers_of_one_model_are_averaged(tmp_path: Path) -> None:
    lines = [f'{{"id": "1", "label": "{label}"}}' for label in ("spam", "ham", "spam", "spam")]
    read = read_llm_labels(written(tmp_path, *lines), source="llm", classes=["ham", "spam"])
    assert {one.label: one.probability for one in read.votes.itertuples()} == pytest.approx({"spam": 0.75, "ham": 0.25})
    assert read.n_averaged == 3


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "is no JSON"),
        ("[1]", "expected a JSON object"),
        ('{"label": "spam"}', "has no id"),
        ('{"id": "", "label": "spam"}', "has no id"),
        ('{"id": {"a": 1}, "label": "spam"}', "has no id"),
        ('{"id": "1", "label": ["spam"]}', "the label is"),
        ('{"id": "1", "label": "egg"}', "'egg' is no class; expected one of"),
        ('{"id": "1", "label": "spam", "probability": 1.5}', "the probability is 1.5"),
        ('{"id": "1", "label": "spam", "probability": "high"}', "expected a number"),
        ('{"id": "1", "label": "spam", "probability": true}', "expected a number"),
        ('{"id": "1", "label": "spam", "probability": NaN}', "expected a number"),
        ('{"id": "1", "probabilities": {"spam": 0.5}}', "the probabilities sum to 0.5"),
        ('{"id": "1", "probabilities": {"spam": 1.5, "ham": -0.5}}', "expected 1, and none below 0"),
        ('{"id": "1", "probabilities": []}', "expected an object"),
        ('{"id": "1", "logprobs": {"spam": 0.7}}', "at most 0"),
        ('{"id": "1", "logprobs": {"spam": -Infinity}}', "at most 0"),
    ],
)
def test_a_wrong_line_is_refused_with_its_number(tmp_path: Path, line: str, why: str) -> None:
    path = written(tmp_path, '{"id": "0", "label": "ham"}', line)
    with pytest.raises(InvalidInputError, match=why) as caught:
        read_llm_labels(path, classes=["ham", "spam"])
    assert "line 2" in str(caught.value)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(b'{"id": "\xff"}\n')
    for name in ("x.jsonl", "none.jsonl"):
        with pytest.raises(InvalidInputError, match="cannot be read"):
            read_llm_labels(tmp_path / name)


def test_a_request_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "classes.toml"
    path.write_text(
        'instruction = "Spam?"\ntemplate = "{classes} {content} {other}"\n[classes]\nspam = "ads {content}"\nham = ""\n'
    )
    request = read_request(path)
    assert request.question("a {classes} b") == "- spam: ads {content}\n- ham a {classes} b {other}"
    path.write_text('classes = ["ham", "spam"]')
    assert dict(read_request(path).classes) == {"ham": "", "spam": ""}
    long = LabelRequest({"a": "", "b": ""}, template="{content}", longest=5)
    assert long.question("1234567") == "12345…"
    for text, why in (
        ("classes = 1", "no table"),
        ("[classes]\na = 1", "no table"),
        ("[classes", "as TOML"),
        ("x = 1\n[classes]\na = ''\nb = ''", "'x'"),
    ):
        path.write_text(text)
        with pytest.raises(InvalidInputError, match=why):
            read_request(path)
    with pytest.raises(InvalidInputError, match="cannot be read"):
        read_request(tmp_path / "none.toml")


def test_what_is_shown_of_a_row() -> None:
    frame = pd.DataFrame({"id": ["1", "2"], "title": ["A", None], "text": ["b", "c"]})
    assert contents_of(frame, ["text"]) == ["b", "c"]
    assert contents_of(frame, ["title", "text"]) == ["title: A\ntext: b", "text: c"]


# --- the command ---


WIDE = {"COLUMNS": "200"}


def command(*arguments: str, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "labelchef", "ask-llm", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **WIDE, **environment},
    )


def prepared(folder: Path, server: LlmServer, n: int) -> list[str]:
    rows(n).to_csv(folder / "data.csv", index=False)
    (folder / "classes.toml").write_text('[classes]\nham = "talk"\nspam = "advertising"\n')
    files = [str(folder / "data.csv"), "--classes", str(folder / "classes.toml"), "--out", str(folder / "llm.jsonl")]
    return [*files, "--text", "text", "--endpoint", server.url, "--model", "tiny"]


@pytest.mark.slow
def test_the_command_is_killed_and_goes_on(tmp_path: Path) -> None:
    def slowly(seen: Seen) -> Said:
        said = right(seen)
        said.slow = 0.1
        return said

    with serving(slowly) as server:
        arguments = prepared(tmp_path, server, 40)
        killed = command(*arguments, "--concurrency", "2", LABELCHEF_LLM_KEY="sk-hidden")
        while len(server.seen) < 10 and killed.poll() is None:
            time.sleep(0.02)
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        assert len(server.seen) >= 10
        assert not (tmp_path / "llm.jsonl").exists()
        server.reply = right
        sent = len(server.seen)
        again = command(*arguments, LABELCHEF_LLM_KEY="sk-hidden")
        out, wrong = again.communicate(timeout=300)
        assert again.returncode == 0, wrong
        assert len(server.seen) <= 40 + 4  # only what was under way is asked twice
        assert len(server.seen) - sent < 35
    assert {seen.key for seen in server.seen} == {"Bearer sk-hidden"}
    assert "40 of 40 rows are labelled" in out
    votes = read_llm_labels(tmp_path / "llm.jsonl").votes
    assert dict(zip(votes["item"], votes["label"], strict=True)) == expected(40)
    for path in tmp_path.iterdir():
        assert "sk-hidden" not in path.read_text()
    assert "sk-hidden" not in out + wrong


@pytest.mark.slow
def test_the_command_stops_at_the_ceiling_and_says_what_is_left(tmp_path: Path) -> None:
    with serving(right) as server:
        arguments = prepared(tmp_path, server, 50)
        prices = ["--price-in", "1000", "--price-out", "2000"]
        looked = commands().run("ask-llm", *arguments, *prices, "--dry-run", env=WIDE)
        assert looked.returncode == 0, looked.stderr
        assert "50 questions" in looked.stdout
        assert server.seen == []
        stopped = commands().run("ask-llm", *arguments, *prices, "--max-cost", "2.5", env=WIDE)
        assert stopped.returncode == 1, stopped.stderr
        assert "rows are left" in stopped.stdout
        assert "raise --max-cost" in stopped.stdout
        assert 0 < len(read_llm_labels(tmp_path / "llm.jsonl").votes) < 50
        assert len(server.seen) * 0.07 <= 2.5


@pytest.mark.slow
def test_the_command_refuses_what_it_cannot_use(tmp_path: Path) -> None:
    with serving(right) as server:
        arguments = prepared(tmp_path, server, 3)
    for change, why in (
        (["--id", "nothing"], "there is no column 'nothing'"),
        (["--max-cost", "1"], "--price-in and --price-out"),
        (["--text", "txt"], "there is no column 'txt'"),
    ):
        refused = commands().run("ask-llm", *arguments, *change, env=WIDE)
        assert refused.returncode == 2
        assert why in refused.stderr
        assert "Traceback" not in refused.stderr


# --- on the way into a campaign ---


def test_labels_of_an_llm_join_the_votes_of_rules(tmp_path: Path) -> None:
    frame = rows(30)
    frame.to_csv(tmp_path / "data.csv", index=False)
    truth = ["spam" if i % 3 == 0 else "ham" for i in range(30)]
    pd.DataFrame({"id": frame["id"], "label": truth}).head(12).to_csv(tmp_path / "gold.csv", index=False)
    lines = [
        json.dumps({"id": key, "label": label, "probability": 0.9})
        for key, label in zip(frame["id"], truth, strict=True)
    ]
    path = written(tmp_path, *lines, '{"id": "nobody", "label": "ham"}', '{"id": "000", "label": null}')
    rule = '[[rules]]\nname = "wins"\nkind = "keyword"\ncolumn = "text"\nlabel = "spam"\nwords = ["win"]\n'
    (tmp_path / "rules.toml").write_text(rule)
    for said in (
        Given(trusted=(tmp_path / "gold.csv",), rules=(tmp_path / "rules.toml",), llm=(path,)),
        Given(
            trusted=(tmp_path / "gold.csv",), rules=(tmp_path / "rules.toml",), votes=(path,)
        ),  # found by what is in it
    ):
        looked = look([tmp_path / "data.csv"], said)
        assert [one.role for one in looked.preview.plan.files if one.path == str(path)] == [FileRole.LLM]
        assert looked.preview.sources == ("gpt", "wins")
        assert isinstance(looked.content, Raw)
        votes = looked.content.votes
        assert votes["probability"].notna().all()
        assert votes.groupby(["item", "source"])["probability"].sum().to_numpy() == pytest.approx(1.0)
        codes = {one.code: one for one in looked.preview.findings}
        assert codes["llm-items"].examples == ("nobody",)
        assert codes["llm-without-label"].count == 1
        assert looked.preview.usable
    path.write_text(path.read_text().replace('"label": "ham"', '"label": "Ham"', 1))
    looked = look([tmp_path / "data.csv"], Given(trusted=(tmp_path / "gold.csv",), llm=(path,)))
    assert "votes for 'Ham', which is no class" in next(
        one.message for one in looked.preview.findings if one.code == "vote_class"
    )


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ('{"id": "1", "probabilities": {"a": 1}}', True),
        ('{"item": "1", "logprobs": {"a": -1}}', True),
        ('{"id": "1", "label": "a", "logprob": -1}', True),
        ('{"id": "1", "label": "a", "source": "s", "probability": 1}', False),  # a long table
        ('{"id": "1", "label": "a"}', False),
        ('{"id": "1", "probabilities": [1]}', False),
        ('{"probabilities": {"a": 1}}', False),
        ("{", False),
        ("[]", False),
    ],
)
def test_files_of_llm_labels_are_told_from_tables(tmp_path: Path, line: str, is_one: bool) -> None:
    assert looks_like_llm_labels(written(tmp_path, line)) == is_one
    (tmp_path / "x.csv").write_text(line)
    assert not looks_like_llm_labels(tmp_path / "x.csv")


@given(data=st.data())
def test_mutated_files_are_read_or_refused(tmp_path_factory: Any, data: st.DataObject) -> None:
    text = list(
        '{"id": "1", "label": "ham", "probability": 0.8}\n{"id": 2, "probabilities": {"ham": 0.25, "spam": 0.75}}\n'
        '{"item": "3", "logprobs": {"ham": -0.5, "spam": -2}, "model": "m"}\n{"id": "4", "label": null}\n'
    )
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at] = data.draw(
            st.sampled_from(["", '"', "\n", "{", "}", "[", "-", "9", "e", "null", "NaN", "\0", "é", ","])
        )
    path = tmp_path_factory.mktemp("llm") / "x.jsonl"
    path.write_text("".join(text), encoding="utf-8")
    looks_like_llm_labels(path)
    try:
        votes = read_llm_labels(path).votes
    except InvalidInputError:
        return
    assert votes.groupby(["item", "source"])["probability"].sum().to_numpy() == pytest.approx(1.0)
