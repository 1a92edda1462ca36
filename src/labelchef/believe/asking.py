"""Asking a large language model about rows, at any endpoint that speaks OpenAI's chat completions.

**What is kept.** Every answer is appended to the *cache*, a JSONL file, as soon as it is there. Its key is

    SHA-256 of (model, question, schema of the answer),

so a run that was interrupted goes on where it was, equal rows are asked once, and a changed prompt or model asks again.

**What it costs.** With prices a and b per million tokens read and written, a request of q bytes costs at most

    bound = (a · (q + OVERHEAD) + b · max_tokens) / 10⁶,

because a token has at least one byte. A request is sent only if

    spent + Σ bounds of requests under way + bound ≤ max_cost,

with spent the sum of the costs in the cache, of all runs. So the ceiling is not passed by a server that keeps to max_tokens. A
request whose connection was cut after it was sent counts with its bound: it may be billed. What a server does not report is
counted with its bound too.

**What goes wrong.** Too many requests (429), errors of the server (500 and others), time-outs, cut connections and bodies that
are no chat completion are tried again, up to `attempts` times, after min(60, backoff · 2^k) seconds times a random number from
½ to 1, or after what `Retry-After` says; 429 holds up all requests. A key that is refused (401, 403), an unknown model or path
(404), an empty account and `GIVE_UP_AFTER` failures in a row end the run; all answers so far are kept. If requests are refused as
badly formed (400, 422) before any was answered, they are sent with fewer demands: without log-probabilities, then without a
schema.

The API key comes from an environment variable. It is sent to the endpoint only, redirects are not followed, and it is neither
stored nor shown; where a server repeats it in a message, it is blotted out.
"""

import contextlib
import hashlib
import json
import math
import random
import threading
import time
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pandas as pd

from labelchef.base.errors import InvalidInputError, MissingExtraError
from labelchef.base.files import whole_file
from labelchef.base.intake import Progress, no_progress
from labelchef.base.numbers import check_number, check_whole
from labelchef.believe.llm import Answer, LabelRequest, Token, contents_of, read_answer, votes_of

if TYPE_CHECKING:
    import httpx

ID = "id"
"""The column of a frame that names the rows."""
OVERHEAD = 64
"""Tokens that a server may add to a question: roles and separators."""
GIVE_UP_AFTER = 5
"""Failures in a row, each after all attempts, that end a run."""
LONGEST_WAIT = 300.0
"""Seconds that a server may ask to wait before the run ends instead."""
_FINE, _TOO_MANY = 200, 429
_AGAIN = frozenset({408, 425, _TOO_MANY, 500, 502, 503, 504, 520, 522, 524, 529})
_BADLY_FORMED = (400, 422)
_NOT_ALLOWED = (401, 403)
_FORMS = ("schema and log-probabilities", "schema", "plain text")
"""What is demanded of an answer, less and less."""
_TOP = 20


@dataclass(frozen=True)
class Endpoint:
    """Where the model is."""

    url: str
    """As in https://host/v1; /chat/completions is added."""
    model: str
    key: str | None = field(default=None, repr=False)
    timeout: float = 60.0
    """Seconds for one answer."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise _wrong("the endpoint is no address that begins with http:// or https://", code="llm_endpoint")
        if parts.username is not None or parts.password is not None:
            raise _wrong(
                "the endpoint holds a user or password; give the key in an environment variable", code="llm_endpoint"
            )
        if not self.model.strip():
            raise _wrong("no model is named", code="llm_endpoint")
        check_number(self.timeout, "timeout", above=0.0, code="llm_endpoint")

    @property
    def address(self) -> str:
        """Where requests go."""
        base = self.url.rstrip("/")
        return base if base.endswith("/chat/completions") else f"{base}/chat/completions"


@dataclass(frozen=True)
class Limits:
    """How fast and how much may be asked."""

    rate: float | None = None
    """Requests a minute; None for no limit."""
    concurrency: int = 4
    """Requests at the same time."""
    max_cost: float | None = None
    """The ceiling of all runs with one cache, in the currency of the prices."""
    price_in: float | None = None
    """Price of a million tokens of questions."""
    price_out: float | None = None
    """Price of a million tokens of answers."""
    max_tokens: int = 100
    """Tokens of an answer; models that think before they answer need more."""
    attempts: int = 6
    """How often a request is sent before its row is given up."""
    backoff: float = 1.0
    """Seconds before the second attempt."""

    def __post_init__(self) -> None:
        check_whole(self.concurrency, "concurrency", code="llm_limits")
        check_whole(self.max_tokens, "max_tokens", code="llm_limits")
        check_whole(self.attempts, "attempts", code="llm_limits")
        check_number(self.backoff, "backoff", least=0.0, code="llm_limits")
        for name in ("rate", "max_cost"):
            if getattr(self, name) is not None:
                check_number(getattr(self, name), name, above=0.0, code="llm_limits")
        for name in ("price_in", "price_out"):
            if getattr(self, name) is not None:
                check_number(getattr(self, name), name, least=0.0, code="llm_limits")
        if self.max_cost is not None and (self.price_in is None or self.price_out is None):
            raise _wrong(
                "a ceiling of the cost needs the prices of a million tokens: --price-in and --price-out",
                code="llm_limits",
            )

    def cost(self, tokens_in: float, tokens_out: float) -> float:
        """What so many tokens cost; 0 without prices."""
        return ((self.price_in or 0.0) * tokens_in + (self.price_out or 0.0) * tokens_out) / 1e6


@dataclass(frozen=True)
class Reply:
    """An answer with what it took, as the cache keeps it."""

    answer: Answer
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0
    text: str = ""
    """What the model wrote."""


@dataclass(frozen=True)
class Asked:
    """What became of a run."""

    items: tuple[tuple[str, Reply], ...]
    """Item (id) → answer, of all rows that have one, in their order."""
    source: str
    n_rows: int
    n_asked: int
    """Questions that this run got an answer to."""
    n_kept: int
    """Rows whose answer was in the cache already, or is that of an equal row."""
    failures: Mapping[str, int]
    """Why rows have no answer → how many questions."""
    cost: float
    """Of this run."""
    spent: float
    """Of all runs with this cache."""
    stopped: str | None
    """Why the run ended before all rows were asked; None if it did not."""

    @property
    def n_left(self) -> int:
        """Rows without an answer."""
        return self.n_rows - len(self.items)

    @property
    def unusable(self) -> tuple[tuple[str, str], ...]:
        """Items whose answer names no class, with the reason."""
        return tuple((item, reply.answer.problem or "") for item, reply in self.items if reply.answer.label is None)

    @property
    def votes(self) -> pd.DataFrame:
        """Long: item, source, label, probability."""
        return votes_of(((item, reply.answer) for item, reply in self.items), self.source)

    def write(self, path: Path) -> None:
        """Write the votes as JSONL, a line for each item and class: id, source, label, probability.

        `labelchef init --votes` reads it, and `believe.llm.read_llm_labels`. An answer that names no class is a line without a
        label that says the problem.
        """
        problems = [
            {"id": item, "source": self.source, "label": None, "probability": None, "problem": why}
            for item, why in self.unusable
        ]
        votes = self.votes.rename(columns={"item": ID}).to_dict("records")
        with whole_file(path) as stream:
            for values in (*votes, *problems):
                stream.write(f"{json.dumps(values, ensure_ascii=False)}\n".encode(errors="replace"))


def _wrong(why: str, *, code: str = "llm") -> InvalidInputError:
    return InvalidInputError(f"LLM labels: {why}", code=code)


def ask(
    request: LabelRequest,
    frame: pd.DataFrame,
    columns: Sequence[str],
    endpoint: Endpoint,
    cache: Path,
    *,
    limits: Limits | None = None,
    source: str | None = None,
    progress: Progress = no_progress,
    ask_again: bool = False,
) -> Asked:
    """Ask about every row of the frame that the cache has no answer for.

    The frame has the column `id`; `columns` are what is shown of a row. `ask_again` asks again where an answer named no class.
    Ctrl-C waits for the requests under way, keeps their answers and gives back what there is; a second one does not wait.
    """
    httpx = _httpx()
    limits = limits or Limits()
    if ID not in frame.columns:
        raise _wrong(f"the rows have no column {ID!r}: {list(frame.columns)[:10]}")
    ids = [str(key) for key in frame[ID].tolist()]
    questions = [request.question(content) for content in contents_of(frame, columns)]
    keys = [key_of(endpoint.model, question, request) for question in questions]
    with _Cache.opened(cache) as kept:
        known = {key for key, reply in kept.replies.items() if not (ask_again and reply.answer.label is None)}
        waiting = {key: question for key, question in zip(keys, questions, strict=True) if key not in known}
        spent_before = kept.spent
        with httpx.Client(
            timeout=endpoint.timeout, limits=httpx.Limits(max_connections=limits.concurrency), follow_redirects=False
        ) as client:
            run = _Run(client, httpx, request, endpoint, limits, kept, waiting)
            run.work(progress, rows=len(set(keys)), done=len(set(keys)) - len(waiting))
        found = tuple((item, kept.replies[key]) for item, key in zip(ids, keys, strict=True) if key in kept.replies)
        return Asked(
            items=found,
            source=source or endpoint.model,
            n_rows=len(frame),
            n_asked=run.n_answered,
            n_kept=len(found) - run.n_answered,
            failures=dict(run.failures),
            cost=kept.spent - spent_before,
            spent=kept.spent,
            stopped=run.stopped,
        )


@dataclass(frozen=True)
class Estimate:
    """What a run would ask and cost at most."""

    n_questions: int
    n_kept: int
    """Rows that need no question: answered before, or equal to another row."""
    longest: int
    """Characters of the longest question."""
    at_most: float
    """Bound of the cost; 0 without prices."""
    example: str


def estimate(
    request: LabelRequest, frame: pd.DataFrame, columns: Sequence[str], model: str, cache: Path, limits: Limits
) -> Estimate:
    """What `ask` would do, without asking."""
    questions = [request.question(content) for content in contents_of(frame, columns)]
    known = _read_cache(cache)[0] if cache.exists() else {}
    keyed = {key_of(model, question, request): question for question in questions}
    waiting = [question for key, question in keyed.items() if key not in known]
    size = len(json.dumps(request.schema).encode())
    tokens = sum(len(question.encode(errors="replace")) + size + OVERHEAD for question in waiting)
    return Estimate(
        n_questions=len(waiting),
        n_kept=len(questions) - len(waiting),
        longest=max(map(len, questions), default=0),
        at_most=limits.cost(tokens, limits.max_tokens * len(waiting)),
        example=questions[0] if questions else "",
    )


def key_of(model: str, question: str, request: LabelRequest) -> str:
    """What an answer is kept under."""
    said = json.dumps([model, question, request.schema], ensure_ascii=True, sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()


def _httpx() -> types.ModuleType:
    try:
        import httpx
    except ImportError:
        raise MissingExtraError("asking an LLM needs httpx; pip install 'labelchef[llm]'", code="llm") from None
    return httpx


# --- the cache ---


class _Cache:
    """Answers in a JSONL file that grows."""

    def __init__(self, stream: IO[bytes], replies: dict[str, Reply], spent: float) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self.replies = replies
        self.spent = spent
        """The costs of all lines."""

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: Path) -> Iterator["_Cache"]:
        """Read the file and hold it for this run; half a line at its end, of a run that was killed, is cut off."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            stream = path.open("a+b")
        except OSError as error:
            raise _wrong(f"the cache {path} cannot be written: {error.strerror}", code="llm_cache") from None
        with stream:
            _hold(stream, path)
            replies, spent, whole = _read_cache(path)
            stream.truncate(whole)
            yield cls(stream, replies, spent)

    def keep(self, key: str, reply: Reply) -> None:
        """Append an answer."""
        values: dict[str, object] = {
            "key": key,
            "label": reply.answer.label,
            "probabilities": None if reply.answer.probabilities is None else dict(reply.answer.probabilities),
            "problem": reply.answer.problem,
            "text": reply.text,
            "tokens_in": reply.tokens_in,
            "tokens_out": reply.tokens_out,
            "cost": reply.cost,
        }
        with self._lock:
            self._append(values)
            self.replies[key] = reply
            self.spent += reply.cost

    def lose(self, key: str, cost: float, why: str) -> None:
        """Note a request that may be billed, but brought no answer."""
        with self._lock:
            self._append({"key": key, "lost": why, "cost": cost})
            self.spent += cost

    def _append(self, values: Mapping[str, object]) -> None:
        self._stream.write(f"{json.dumps(values, ensure_ascii=True)}\n".encode())
        self._stream.flush()


def _hold(stream: IO[bytes], path: Path) -> None:
    """Keep other runs from the file, where the system can; they would pay twice."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        return
    try:
        fcntl.flock(stream.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise _wrong(
            f"another run uses the cache {path}; wait for it, or name another one: --cache", code="llm_cache"
        ) from None


def _read_cache(path: Path) -> tuple[dict[str, Reply], float, int]:
    """The answers by key, what all lines cost, and how many bytes are whole lines."""
    replies: dict[str, Reply] = {}
    spent, whole = 0.0, 0
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            if not line.endswith(b"\n"):
                break
            whole += len(line)
            try:
                values = json.loads(line)
                spent += float(values["cost"])
                if "lost" not in values:
                    replies[str(values["key"])] = Reply(
                        Answer(values["label"], values["probabilities"], values["problem"]),
                        int(values["tokens_in"]),
                        int(values["tokens_out"]),
                        float(values["cost"]),
                        str(values["text"]),
                    )
            except (ValueError, KeyError, TypeError):
                why = f"{path}, line {number} is no answer of an earlier run; name another cache: --cache"
                raise _wrong(why, code="llm_cache") from None
    return replies, spent, whole


# --- a run ---


class _StopError(Exception):
    """The run cannot go on; the text says why."""


class _FailedError(Exception):
    """This question gets no answer; the text says why."""


class _FormError(Exception):
    """The request was refused as badly formed."""


@dataclass
class _Demands:
    """What requests demand; less after a server refused more."""

    form: int = 0
    proven: bool = False
    """Whether a request of this form was answered."""
    tokens_name: str = "max_tokens"
    temperature: bool = True


class _Run:
    """The requests of one run. Several threads work; what they share is guarded by one condition."""

    def __init__(
        self,
        client: "httpx.Client",
        httpx: types.ModuleType,
        request: LabelRequest,
        endpoint: Endpoint,
        limits: Limits,
        cache: _Cache,
        waiting: Mapping[str, str],
    ) -> None:
        self._client = client
        self._cut = (httpx.TransportError,)
        self._unsent = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
        self._request, self._endpoint, self._limits, self._cache = request, endpoint, limits, cache
        self._waiting = iter(list(waiting.items()))
        self._shared = threading.Condition()
        self._ended = threading.Event()
        self._demands = _Demands()
        self._reserved, self._under_way = 0.0, 0
        self._next_slot = 0.0
        self._failed_in_a_row = 0
        self._overhead = OVERHEAD
        self.n_answered = 0
        self.failures: dict[str, int] = {}
        self.stopped: str | None = None
        self._broken: BaseException | None = None

    def work(self, progress: Progress, *, rows: int, done: int) -> None:
        """Ask everything that is waiting."""
        workers = [threading.Thread(target=self._worker, daemon=True) for _ in range(self._limits.concurrency)]
        try:
            for worker in workers:
                worker.start()
            while any(worker.is_alive() for worker in workers):
                progress("asking the LLM", done + self.n_answered, rows)
                for worker in workers:
                    worker.join(0.1)
                    if worker.is_alive():
                        break
            progress("asking the LLM", done + self.n_answered, rows)
        except KeyboardInterrupt:
            self._stop("interrupted")
            for worker in workers:
                if worker.ident is not None:
                    worker.join(self._endpoint.timeout)
        if self._broken is not None:
            raise self._broken

    def _stop(self, why: str) -> None:
        with self._shared:
            self.stopped = self.stopped or why
            self._ended.set()
            self._shared.notify_all()

    def _worker(self) -> None:
        try:
            while not self._ended.is_set():
                with self._shared:
                    key, question = next(self._waiting, (None, ""))
                if key is None:
                    return
                try:
                    self._answer(key, question)
                except _FailedError as error:
                    self._note_failure(str(error))
                else:
                    with self._shared:
                        self.n_answered += 1
                        self._failed_in_a_row = 0
        except _StopError as error:
            self._stop(str(error))
        except BaseException as error:  # shown by the thread that waits
            self._broken = error
            self._stop("error")

    def _note_failure(self, why: str) -> None:
        with self._shared:
            self.failures[why] = self.failures.get(why, 0) + 1
            self._failed_in_a_row += 1
            if self._failed_in_a_row >= GIVE_UP_AFTER:
                raise _StopError(f"{GIVE_UP_AFTER} questions in a row got no answer; the last: {why}")

    def _answer(self, key: str, question: str) -> None:
        """Ask one question until there is an answer, which is kept."""
        why, draw = "", random.Random(key)
        attempt = 0
        while attempt < self._limits.attempts:
            demands = self._demands_now()
            body = self._body(question, demands)
            size = len(json.dumps(body, ensure_ascii=False).encode(errors="replace"))
            bound = self._limits.cost(size + self._overhead, self._limits.max_tokens)
            self._reserve(bound)
            cost, wait, everybody = 0.0, None, False
            try:
                self._wait_for_slot()
                response = self._client.post(self._endpoint.address, json=body, headers=self._headers())
                reply, why = self._read(response, bound)
                if reply is not None:
                    self._cache.keep(key, reply)
                    self._overhead = max(self._overhead, reply.tokens_in - size)
                    return
                cost = bound if response.status_code == _FINE else 0.0
                wait, everybody = _retry_after(response.headers.get("retry-after")), response.status_code == _TOO_MANY
                if wait is not None and wait > LONGEST_WAIT:
                    raise _StopError(f"the endpoint asks to wait {wait:.0f} seconds; run the command again then")
            except _FormError as error:
                self._demand_less(demands, str(error))
                continue
            except self._cut as error:
                why = f"{type(error).__name__}: {self._blot(str(error))}"
                cost = 0.0 if isinstance(error, self._unsent) else bound
            finally:
                if cost:
                    self._cache.lose(key, cost, why)
                self._release(bound)
            attempt += 1
            if attempt < self._limits.attempts:
                pause = (
                    min(60.0, self._limits.backoff * 2 ** (attempt - 1)) * draw.uniform(0.5, 1.0)
                    if wait is None
                    else wait
                )
                if everybody:
                    self._hold_up(pause)
                if self._ended.wait(pause):
                    raise _StopError(self.stopped or "")
        raise _FailedError(why)

    def _headers(self) -> dict[str, str]:
        return {} if self._endpoint.key is None else {"Authorization": f"Bearer {self._endpoint.key}"}

    def _demands_now(self) -> _Demands:
        with self._shared:
            now = self._demands
            return _Demands(now.form, now.proven, now.tokens_name, now.temperature)

    def _body(self, question: str, demands: _Demands) -> dict[str, object]:
        body: dict[str, object] = {
            "model": self._endpoint.model,
            "messages": [{"role": "user", "content": question}],
            demands.tokens_name: self._limits.max_tokens,
        }
        if demands.temperature:
            body["temperature"] = 0
        if demands.form == 0:
            body |= {"logprobs": True, "top_logprobs": _TOP}
        if demands.form <= 1:
            schema = {"name": "label", "strict": True, "schema": self._request.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body

    def _demand_less(self, used: _Demands, why: str) -> None:
        """After a refusal of what was demanded, demand less; if that was the least, give up the question."""
        with self._shared:
            now = self._demands
            if (now.form, now.tokens_name, now.temperature) != (used.form, used.tokens_name, used.temperature):
                return  # another thread did it already
            if "max_completion_tokens" in why and now.tokens_name == "max_tokens":
                now.tokens_name = "max_completion_tokens"
            elif "temperature" in why and now.temperature:
                now.temperature = False
            elif now.proven:
                raise _FailedError(why)
            elif now.form + 1 < len(_FORMS):
                now.form += 1
            else:  # not the demands, but this question: the next one begins from the start
                now.form = 0
                raise _FailedError(why)

    def _read(self, response: "httpx.Response", bound: float) -> tuple[Reply | None, str]:
        """The answer in a response, or why there is none and it should be tried again."""
        status = response.status_code
        if status != _FINE:
            why = f"{status}: {self._blot(_message_of(response))}"
            if status in _BADLY_FORMED:
                raise _FormError(why)
            if status not in _AGAIN or "insufficient_quota" in response.text:
                hint = "; is the key right? It is read from an environment variable" if status in _NOT_ALLOWED else ""
                raise _StopError(f"the endpoint refuses: {why}{hint}")
            return None, why
        try:
            values = response.json()
            choice = values["choices"][0]
            text = choice["message"].get("content") or ""
            usage = values.get("usage") or {}
            tokens = _tokens_of(choice.get("logprobs"))
            tokens_in, tokens_out = int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)
            finished = choice.get("finish_reason")
            refusal = choice["message"].get("refusal")
            answer = read_answer(list(self._request.classes), text, tokens)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            return None, f"the body is no chat completion: {self._blot(_message_of(response))}"
        with self._shared:
            self._demands.proven = True
        if answer.label is None and finished == "length":
            answer = Answer(
                None, problem=f"the answer was cut off after {self._limits.max_tokens} tokens: {text[:100]!r}"
            )
        elif answer.label is None and isinstance(refusal, str) and refusal:
            answer = Answer(None, problem=f"the model refused: {refusal[:100]!r}")
        cost = self._limits.cost(tokens_in, tokens_out) if tokens_in > 0 else bound
        return Reply(answer, tokens_in, tokens_out, cost, text), ""

    def _blot(self, text: str) -> str:
        """Without the key, if a server repeats it."""
        return text.replace(self._endpoint.key, "***") if self._endpoint.key else text

    # the cost

    def _reserve(self, bound: float) -> None:
        """Wait until the request fits under the ceiling; end the run if it never will."""
        ceiling = math.inf if self._limits.max_cost is None else self._limits.max_cost
        with self._shared:
            while self._cache.spent + self._reserved + bound > ceiling:
                if self._under_way == 0 or self._ended.is_set():
                    left = max(0.0, ceiling - self._cache.spent)
                    raise _StopError(
                        f"the next question may cost {bound:.4g}, and {left:.4g} of {ceiling:.4g} are left; raise --max-cost"
                    )
                self._shared.wait(1.0)
            self._reserved += bound
            self._under_way += 1

    def _release(self, bound: float) -> None:
        with self._shared:
            self._under_way -= 1
            self._reserved = self._reserved - bound if self._under_way else 0.0  # no rest of rounding
            self._shared.notify_all()

    # the rate

    def _wait_for_slot(self) -> None:
        """Wait for the turn of this request: requests are spread evenly over a minute."""
        with self._shared:
            slot = max(time.monotonic(), self._next_slot)
            self._next_slot = slot + (60.0 / self._limits.rate if self._limits.rate else 0.0)
        if self._ended.wait(max(0.0, slot - time.monotonic())):
            raise _StopError(self.stopped or "")

    def _hold_up(self, seconds: float) -> None:
        with self._shared:
            self._next_slot = max(self._next_slot, time.monotonic() + seconds)


def _retry_after(said: str | None) -> float | None:
    """Seconds to wait by a Retry-After header: a number or a date.

    >>> _retry_after("2.5"), _retry_after("Thu, 01 Jan 1970 00:00:00 GMT"), _retry_after("soon")
    (2.5, 0.0, None)
    """
    if said is None:
        return None
    try:
        seconds = float(said)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(said).timestamp() - time.time()
        except (ValueError, TypeError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _message_of(response: "httpx.Response") -> str:
    """What a server says of an error, in one line."""
    try:
        values = response.json()
        error = values.get("error", values)
        said = error.get("message", error) if isinstance(error, dict) else error
    except (ValueError, AttributeError):
        said = response.text
    return " ".join(str(said).split())[:300]


def _tokens_of(given: Any) -> list[Token]:
    """The tokens of an answer with their probabilities, if the server gives them."""
    if not isinstance(given, dict) or not isinstance(given.get("content"), list):
        return []

    def read(one: Any) -> tuple[bytes, float]:
        raw = one.get("bytes")
        return bytes(raw) if isinstance(raw, list) else str(one["token"]).encode(), math.exp(
            min(float(one["logprob"]), 0.0)
        )

    tokens = []
    for one in given["content"]:
        text, p = read(one)
        others = [read(other) for other in one.get("top_logprobs") or ()]
        tokens.append(Token(text, p, tuple((other, q) for other, q in others if other != text)))
    return tokens
