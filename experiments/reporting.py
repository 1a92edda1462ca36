"""A page of results: Markdown with tables and figures, the same figures as CSV, and a header that says how they came about."""

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.store import Result
from labelchef.judge.report.charts import as_svg

DOCS, RESULTS = Path(__file__).parent.parent / "docs", Path(__file__).parent / "results"
INTRO, COMMENTARY = Path(__file__).parent / "intro", Path(__file__).parent / "commentary"


@dataclass
class Report:
    """A page under construction; `write` makes `<name>.md`, `<name>.csv` and `<name>-*.svg` of it."""

    name: str
    title: str
    parts: list[str] = field(default_factory=list)
    figures: dict[str, str] = field(default_factory=dict)
    frames: list[pd.DataFrame] = field(default_factory=list)

    def text(self, text: str) -> None:
        """A paragraph, or a heading."""
        self.parts.append(text.strip())

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> None:
        """A Markdown table: the first `left` columns left, the others right."""
        lines = [head, [*["---"] * left, *["---:"] * (len(head) - left)], *rows]
        self.parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))

    def figure(self, name: str, caption: str, chart: Any) -> None:
        """A chart, drawn to SVG."""
        self.figures[f"{self.name}-{name}.svg"] = as_svg(chart)
        self.parts.append(f"![{caption}]({self.name}-{name}.svg)")

    def data(self, frame: pd.DataFrame) -> None:
        """Rows for the CSV."""
        self.frames.append(frame)

    def intro(self, name: str, **values: object) -> None:
        """How the figures were taken: a text of `experiments/intro/`, with its values filled in."""
        text = (INTRO / f"{name}.md").read_text()
        self.text(text.format(**values) if values else text)

    def commentary(self) -> None:
        """What a person wrote about these results, in `experiments/commentary/`; `{docs}` there is the folder docs/."""
        path = COMMENTARY / f"{self.name}.md"
        if path.exists():
            self.text(path.read_text())

    def write(self, folder: Path) -> Path:
        """The page, written to the folder with its figures."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, svg in self.figures.items():
            (folder / name).write_text(svg)
        if self.frames:
            pd.concat(self.frames, ignore_index=True).to_csv(folder / f"{self.name}.csv", index=False)
            self.text(f"All figures: [{self.name}.csv]({self.name}.csv).")
        body = "\n\n".join([f"# {self.title}", *self.parts]).replace("{docs}", os.path.relpath(DOCS, folder))
        path = folder / f"{self.name}.md"
        path.write_text(body + "\n")
        return path


def header(results: Sequence[Result], name: str, quick: bool) -> str:
    """Seeds, versions, date and machine of what follows."""
    seeds = sorted({result["cell"]["seed"] for result in results})
    versions = ", ".join(sorted({result["version"] for result in results}))
    codes = ", ".join(sorted({result["code"] for result in results}))
    parts = [f"{package} {version(package)}" for package in ("numpy", "scipy", "scikit-learn", "numba")]
    warned = sum(bool(result["warnings"]) for result in results)
    lines = [
        f"Generated on {datetime.now(UTC):%d %B %Y} by `python -m experiments {name}{' --quick' if quick else ''}`: "
        f"{len(results):,} cell{'s' * (len(results) > 1)}, {_span(seeds)}, labelchef {versions} (source {codes}), "
        f"Python {platform.python_version()}, {', '.join(parts)}; {os.cpu_count()} cores, {_processor()}.",
    ]
    if quick:
        lines.append("**A reduced run, to see that everything works: its figures mean nothing.**")
    if warned:
        kinds = sorted({kind for result in results for kind in result["warnings"]})
        lines.append(f"{warned:,} cells warned ({', '.join(kinds)}).")
    return "\n".join(lines)


def _span(seeds: list[int]) -> str:
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"


def _processor() -> str:
    """The processor's name where the system tells it."""
    known = Path("/proc/cpuinfo")
    if known.exists():
        for line in known.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()
