"""Tables of `make bench` can be read in a log and in a narrow terminal."""

import io

import pytest
from benchmarks.__main__ import FittingConsole
from rich.table import Table

TITLES = (
    "seconds to bring the model up to date",
    "median of all rounds",
    "largest of all rounds",
    "memory in gigabytes",
)


def printed(*, terminal: bool, width: int) -> str:
    table = Table(title="what it costs")
    for title in TITLES:
        table.add_column(title)
    table.add_row("0.00121", "0.00093", "0.01207", "1.25")
    out = io.StringIO()
    FittingConsole(file=out, force_terminal=terminal, width=width, no_color=True, color_system=None).print(table)
    return out.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_title_is_cut_or_broken_within_a_word(width: int, terminal: bool) -> None:
    out = printed(terminal=terminal, width=width)
    words = " ".join(out.split())
    for title in TITLES:
        assert title in words
    assert {"0.00121", "0.00093", "0.01207", "1.25"} <= set(words.split())
    if terminal:
        assert max(map(len, out.splitlines())) <= width


def test_a_log_has_a_table_with_a_line_for_each_row() -> None:
    lines = printed(terminal=False, width=80).splitlines()
    assert any(all(title in line for title in TITLES) for line in lines)
    assert any("0.00121" in line and "1.25" in line for line in lines)
