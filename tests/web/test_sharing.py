"""Heavy answers are computed once for all who wait, and few at a time."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from labelchef.base.campaigns import CampaignSummary
from labelchef.base.errors import ThrottledError
from labelchef.server import sharing
from labelchef.server.campaigns.progress import progress
from labelchef.server.sharing import Shared, few_at_a_time
from labelchef.server.store import vote_table
from labelchef.server.workspace import Workspace
from tests.web.conftest import Person

Sign = Callable[[str], Person]


def test_twenty_who_want_the_progress_are_one_computation(
    ws: Workspace, as_person: Sign, campaign: CampaignSummary, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, counted = vote_table.live_votes_of_campaign, []

    def counting(*given: Any) -> Any:
        counted.append(1)
        return read(*given)

    monkeypatch.setattr(vote_table, "live_votes_of_campaign", counting)
    ann = as_person("ann")
    with ThreadPoolExecutor(20) as pool:
        found = [one.result() for one in [pool.submit(progress, ws, campaign.slug) for _ in range(20)]]
    assert len(set(map(id, found))) == 1
    assert len(counted) == 1
    item = ann.post(f"/api/campaigns/{campaign.slug}/next", {}).json()["tasks"][0]["item"]
    ann.post(f"/api/campaigns/{campaign.slug}/votes", {"item": item, "label": 0})
    assert progress(ws, campaign.slug) != found[0], "a lead sees the vote at once"
    assert len(counted) == 2


def test_an_error_is_given_to_all_who_wait_and_not_kept() -> None:
    shared, begun, go = Shared[int](kept=4), threading.Event(), threading.Event()

    def fail() -> int:
        begun.set()
        go.wait(30)
        raise ValueError("no")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(shared.get, "a", fail)
        assert begun.wait(30)
        second = pool.submit(shared.get, "a", lambda: 1)
        go.set()
        with pytest.raises(ValueError, match="no"):
            first.result()
        assert second.exception() is not None or second.result() == 1
    assert shared.get("a", lambda: 2) in (1, 2)


def test_exports_beyond_those_that_may_wait_are_told_to_come_back() -> None:
    go, most = threading.Event(), sharing.AT_ONCE + sharing.MOST_WAITING
    inside, running = threading.Semaphore(0), []

    def hold() -> None:
        with few_at_a_time():
            running.append(1)
            inside.release()
            go.wait(60)

    with ThreadPoolExecutor(most) as pool:
        held = [pool.submit(hold) for _ in range(most)]
        try:
            for _ in range(sharing.AT_ONCE):
                assert inside.acquire(timeout=60)
            while sharing._waiting._value:
                pass
            assert len(running) == sharing.AT_ONCE
            with pytest.raises(ThrottledError) as told, few_at_a_time():
                pass
            assert told.value.code == "busy"
        finally:
            go.set()
        for one in held:
            one.result()
    with few_at_a_time():
        pass
