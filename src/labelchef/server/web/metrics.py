"""Metrics for Prometheus: what requests did, counted by each web process, and what the database says of the workspace.

With several web processes the counters of all of them are added up: `shared_folder` sets the folder through which
prometheus_client shares them (its multiprocess mode), before any process starts. Numbers of rounds, campaigns and jobs come from
the database (`server.measures`), so they need no sharing and hold for workers on other machines too.

Labels are routes as declared, methods, statuses, codes, states and steps: never names of people or campaigns.
"""

import contextlib
import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from labelchef.base.campaigns import CampaignState
from labelchef.base.errors import MissingExtraError
from labelchef.base.events import Note
from labelchef.base.files import folder_for_a_while
from labelchef.base.jobs import JobState
from labelchef.server.health import Readiness
from labelchef.server.measures import Measures
from labelchef.server.workspace import Workspace

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

SHARED = "PROMETHEUS_MULTIPROC_DIR"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_VOTES = re.compile(r"/api/campaigns/\{campaign\}/votes")
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_OF_PROCESS = re.compile(r"gauge_live\w*_(\d+)\.db")


def require_metrics() -> None:
    """Refuse if the library is missing."""
    try:
        import prometheus_client  # noqa: F401
    except ImportError:
        raise MissingExtraError(
            "metrics need prometheus-client; pip install 'labelchef[metrics]'", code="metrics"
        ) from None


@contextlib.contextmanager
def shared_folder() -> Iterator[None]:
    """A folder for the counters of this process and of those that it starts; it is deleted afterwards.

    The library looks for it once, when it is imported: to be called before that.
    """
    with folder_for_a_while(None, "labelchef-metrics-") as folder:
        os.environ[SHARED] = str(folder)
        try:
            yield
        finally:
            del os.environ[SHARED]


@functools.cache
def _counters() -> "Counters":
    return Counters()


class Counters:
    """What requests did, in this process."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry = here = CollectorRegistry()
        self.requests = Counter(
            "labelchef_requests", "Requests that were answered.", ["method", "route", "status"], registry=here
        )
        self.seconds = Histogram(
            "labelchef_request_seconds", "Seconds to answer a request.", ["route"], buckets=_BUCKETS, registry=here
        )
        self.votes = Counter("labelchef_votes_stored", "Votes that were stored.", registry=here)
        self.refused = Counter("labelchef_votes_refused", "Votes that were refused.", ["code"], registry=here)
        self.tasks = Counter("labelchef_tasks_handed_out", "Items that were handed to people.", registry=here)
        self.connections = Gauge(
            "labelchef_database_connections",
            "Connections to the database that web processes have open.",
            ["state"],
            registry=here,
            multiprocess_mode="livesum",
        )


class Metrics:
    """The metrics of an app: counts requests, and answers a scrape."""

    def __init__(self, ws: Workspace, ready: Readiness) -> None:
        require_metrics()
        self._ws = ws
        self._ready = ready
        self._measures = Measures(ws)
        self._counters = _counters()

    def seen(self, method: str, route: str, status: int, seconds: float, note: Note) -> None:
        """A request was answered."""
        known = self._counters
        known.requests.labels(method, route, str(status)).inc()
        known.seconds.labels(route).observe(seconds)
        known.votes.inc(note.counts.get("votes_stored", 0))
        known.tasks.inc(note.counts.get("tasks_handed_out", 0))
        if status >= 400 and method == "POST" and _VOTES.fullmatch(route):
            known.refused.labels(note.code or str(status)).inc()
        self._look_at_pool()

    def _look_at_pool(self) -> None:
        for state, number in self._ws.database.pool_use().items():
            self._counters.connections.labels(state).set(number)

    def text(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        from prometheus_client import generate_latest

        return generate_latest(self._registry())

    def _registry(self) -> "CollectorRegistry":
        from prometheus_client import CollectorRegistry
        from prometheus_client.multiprocess import MultiProcessCollector

        self._look_at_pool()
        found = CollectorRegistry()
        folder = os.environ.get(SHARED)
        if folder is None:
            found.register(_Of(self._counters.registry.collect))
        else:
            _forget_dead(Path(folder))
            MultiProcessCollector(found, folder)  # type: ignore[no-untyped-call]
        found.register(_Of(self._from_database))
        return found

    def _from_database(self) -> "Iterator[Metric]":
        """What the database and the disk say; only whether it is ready, while they do not answer."""
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        report = self._ready.look()
        checks = GaugeMetricFamily("labelchef_ready", "1 where a check of /readyz holds, else 0.", labels=["check"])
        for check in report.checks:
            checks.add_metric([check.name], float(check.ok))
        yield checks
        if not report.ready and any(not one.ok for one in report.checks if one.name in ("database", "answer")):
            return
        seen = self._measures.look()
        gauge = GaugeMetricFamily("labelchef_campaigns", "Campaigns by state.", labels=["state"])
        for campaign in (*CampaignState, "archived", "deleted"):
            gauge.add_metric([campaign], seen.campaigns.get(campaign, 0))
        yield gauge
        gauge = GaugeMetricFamily("labelchef_jobs", "Jobs in the background by state.", labels=["state"])
        for job in JobState:
            gauge.add_metric([job], seen.jobs.get(job, 0))
        yield gauge
        yield GaugeMetricFamily("labelchef_open_leases", "Items reserved for a person now.", seen.open_leases)
        yield GaugeMetricFamily("labelchef_disk_free_bytes", "Free where the home lies.", seen.disk_free)
        rounds = seen.rounds
        yield CounterMetricFamily("labelchef_rounds", "Rounds closed, first models among them.", rounds.rounds)
        counter = CounterMetricFamily("labelchef_round_steps", "Steps of closed rounds.", labels=["step"])
        for step, times in sorted(rounds.steps.items()):
            counter.add_metric([step], times)
        yield counter
        counter = CounterMetricFamily("labelchef_round_step_seconds", "Seconds of these steps.", labels=["step"])
        for step, took in sorted(rounds.seconds.items()):
            counter.add_metric([step], took)
        yield counter
        yield CounterMetricFamily("labelchef_sweeps", "Passes over the features in closed rounds.", rounds.sweeps)
        read = "Bytes of the features that closed rounds have read from files."
        yield CounterMetricFamily("labelchef_read_bytes", read, rounds.read_bytes)
        last = "When the last round was closed, in seconds since 1970; 0: never."
        yield GaugeMetricFamily("labelchef_last_round_timestamp_seconds", last, rounds.last_closed or 0.0)


class _Of:
    """A collector of what a function gives."""

    def __init__(self, found: "Callable[[], Iterable[Metric]]") -> None:
        self.collect = found


def _forget_dead(folder: Path) -> None:
    """Remove the gauges of web processes that are no longer there; their counters stay in the sums."""
    from prometheus_client.multiprocess import mark_process_dead

    for path in folder.glob("gauge_live*.db"):
        found = _OF_PROCESS.fullmatch(path.name)
        if found is not None and not Path(f"/proc/{found[1]}").exists():
            mark_process_dead(int(found[1]), str(folder))  # type: ignore[no-untyped-call]
