"""A small run of the fuzz of requests; the large one is `python -m tests.fuzz_requests --cases 10000`."""

import pytest

from tests.fuzz_requests import fuzz, table
from tests.web.calls import CALLS, world_in


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_no_mutated_request_breaks_the_server(tmp_path_factory: pytest.TempPathFactory) -> None:
    with world_in(tmp_path_factory.mktemp("fuzz")) as world:
        found = fuzz(world, 5 * len(CALLS), seed=1)
    assert found.wrong == [], table(found)
