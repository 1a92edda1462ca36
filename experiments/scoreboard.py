"""The scoreboard: what would a user have without labelchef? Trusted samples, a hundred labels, and the libraries of the field.

Curves are test macro-F1 f(a) after a = 0, 20, …, 100 labels asked, averaged over seeds. Labels saved by a method against another:

    saved = 100 − a*,     a* the labels until the method first has f_other(100)           if it ends at or above the other
          = −(100 − a′),  a′ the labels until the other first has f_method(100)           if it ends below it

so 100 means that it starts where the other ends, 0 that they end level, −100 that it ends where the other starts. The best peer
of a set is the one with the largest area under its curve there: chosen afterwards, which favours the peers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiments import data, figures, peers
from experiments.cells import Cell
from experiments.plans import Experiment, Plan
from experiments.reporting import Report
from experiments.stats import Estimate, estimate, labels_to_reach, mean_ranks
from experiments.store import Result

N_TRAIN, N_TEST, BATCH, LABELS = 4000, 5000, 20, 100
OUR_LABELS = 140
"""The default is asked on, to see how many labels it needs where it is behind after 100."""
SIZES = (100, 30, 300)
"""Trusted samples, in the order in which they are run."""
FIRST_SEEDS = 3
ERRING = ("lr_random", "lr_margin", "majority", "cleanlab", "labelchef_01", "labelchef")
"""Rows that are also run with people who err, with `ERRING_SIZE` trusted samples."""
ERRING_SIZE = 100
RIVAL = "lr_margin"
DRAWS = 1000
LOSS = 0.005
"""Differences of mean macro-F1 that are named as losses."""
COSTS = 0.02
"""No larger budget may cost more than this against the start."""
SHOWN = (
    "trusted",
    "lr_random",
    "lr_margin",
    "snorkel",
    "majority",
    "cleanlab",
    "badge",
    "labelchef_01",
    "labelchef",
)
"""Lines of the charts: all of them would not be readable."""

Floats = NDArray[np.float64]
Place = tuple[str, int]
"""A set and a number of trusted samples."""
Means = dict[str, dict[Place, Floats]]
"""Method → place → mean curve (points,)."""


def _cells(plan: Plan) -> list[Cell]:
    """Some seeds of every size first, so that a run that is stopped has something of everything."""
    sets = data.sourced_here()
    sets = tuple(name for name in sets if name in plan.sets) or sets if plan.quick else sets
    sizes = SIZES[:2] if plan.quick else SIZES
    settings = {"b": BATCH, **plan.sizes(N_TRAIN, N_TEST)}
    cells = []
    for block in (range(min(FIRST_SEEDS, plan.seeds)), range(FIRST_SEEDS, plan.seeds)):
        for n_trusted in sizes:
            for name in (*peers.ours_here(), *peers.PEERS, peers.CEILING):
                if name == peers.CEILING and n_trusted != max(sizes):
                    continue
                kind, labels = "board" if name in peers.OURS else "peer", OUR_LABELS if name == "labelchef" else LABELS
                cells += [
                    Cell("scoreboard", of, seed, selector=name, n_val=n_trusted, kind=kind, labels=labels, **settings)
                    for of in sets for seed in block
                ]  # fmt: skip
    return cells + [
        replace(cell, strategy="errs", labels=LABELS)
        for cell in cells
        if cell.selector in ERRING and cell.n_val == ERRING_SIZE
    ]


@dataclass(frozen=True)
class Board:
    """Curves of all methods, for the sets, sizes and seeds that all of them have.

    `curves[method][name, size]` is (seeds, points); `long` the same beyond 100 labels, for rows that were asked on.
    """

    points: Floats
    curves: Means
    long: dict[str, dict[Place, tuple[Floats, Floats]]]
    ceiling: dict[str, Floats]

    @property
    def methods(self) -> list[str]:
        """Names of the rows."""
        return list(self.curves)

    @property
    def ours(self) -> str:
        """The row that is compared: the default, or version 0.1 where this version has no other."""
        return "labelchef" if "labelchef" in self.curves else "labelchef_01"

    @property
    def rivals(self) -> list[str]:
        """Peers, in their order."""
        return [name for name in self.curves if name in peers.PEERS]

    @property
    def places(self) -> list[Place]:
        """(set, size) of all problems."""
        return list(self.curves[self.methods[0]])

    @property
    def sets(self) -> list[str]:
        """Names of the sets."""
        return list(dict.fromkeys(name for name, _ in self.places))

    @property
    def sizes(self) -> list[int]:
        """Numbers of trusted samples, ascending."""
        return sorted({size for _, size in self.places})

    def frame(self) -> pd.DataFrame:
        """A row a campaign: data, size, seed, method, f1_0, f1_100, area."""
        rows = [
            {"data": name, "size": size, "seed": seed, "method": method, "f1_0": curve[0], "f1_100": curve[-1],
             "area": area_of(curve)}
            for method, found in self.curves.items()
            for (name, size), curves in found.items()
            for seed, curve in enumerate(curves)
        ]  # fmt: skip
        return pd.DataFrame(rows)


def board_of(results: Sequence[Result]) -> Board:
    """The curves; a set, size and seed that lacks a method is left out for all."""
    last = max(result["asked"][-1] for result in results if result["cell"]["kind"] == "peer")
    points = np.arange(0.0, last + 1, BATCH)
    found: dict[str, dict[Place, dict[int, Result]]] = {}
    ceiling: dict[str, list[float]] = {}
    for result in results:
        cell = result["cell"]
        if cell["selector"] == peers.CEILING:
            ceiling.setdefault(cell["data"], []).append(result["test_f1"][0])
        else:
            found.setdefault(cell["selector"], {}).setdefault((cell["data"], cell["n_val"]), {})[cell["seed"]] = result
    order = [name for name in (*peers.PEERS, *peers.OURS) if name in found]
    places = sorted(
        {place for of in found.values() for place in of}, key=lambda p: (list(data.SOURCED).index(p[0]), p[1])
    )
    shared = {place: sorted(set.intersection(*[set(found[name].get(place, {})) for name in order])) for place in places}
    curves: Means = {}
    longer: dict[str, dict[Place, tuple[Floats, Floats]]] = {}
    for name in order:
        of = {place: [found[name][place][seed] for seed in seeds] for place, seeds in shared.items() if seeds}
        curves[name] = {
            place: np.array([np.interp(points, result["asked"], result["test_f1"]) for result in mine])
            for place, mine in of.items()
        }
        longer[name] = {
            place: (np.array(mine[0]["asked"], dtype=np.float64), _mean_curve(mine)) for place, mine in of.items()
        }
    return Board(points, curves, longer, {name: np.array(values) for name, values in ceiling.items()})


def _mean_curve(results: Sequence[Result]) -> Floats:
    asked = results[0]["asked"]
    return np.asarray(np.mean([np.interp(asked, result["asked"], result["test_f1"]) for result in results], axis=0))


def area_of(curve: Floats) -> Any:
    """Mean of a curve, or of each of several, with points at equal distances."""
    inner = curve[..., 1:-1].sum(axis=-1) + (curve[..., 0] + curve[..., -1]) / 2
    return inner / (curve.shape[-1] - 1)


def saved(points: Floats, ours: Floats, other: Floats) -> float:
    """Labels saved by a mean curve against another, from −last to last.

    >>> saved(np.array([0.0, 50.0, 100.0]), np.array([0.5, 0.7, 0.8]), np.array([0.4, 0.5, 0.6]))
    75.0
    >>> saved(np.array([0.0, 50.0, 100.0]), np.array([0.4, 0.5, 0.6]), np.array([0.5, 0.7, 0.8]))
    -75.0
    """
    if ours[-1] >= other[-1]:
        return float(points[-1] - labels_to_reach(points.tolist(), ours.tolist(), float(other[-1])))
    return -float(points[-1] - labels_to_reach(points.tolist(), other.tolist(), float(ours[-1])))


def best_rival(board: Board, means: Means, place: Place) -> str:
    """The peer with the largest area at a set and size."""
    return max(board.rivals, key=lambda name: float(area_of(means[name][place])))


def best_everywhere(board: Board, means: Means) -> str:
    """The one peer with the largest mean area over all sets and sizes."""
    return max(board.rivals, key=lambda name: float(np.mean([area_of(curve) for curve in means[name].values()])))


def means_of(board: Board, seeds: dict[Place, NDArray[np.int64]] | None = None) -> Means:
    """Mean curves over the seeds, or over the given draw of them."""
    return {
        name: {place: (curves if seeds is None else curves[seeds[place]]).mean(axis=0) for place, curves in of.items()}
        for name, of in board.curves.items()
    }


AGAINST = ("best", "single", RIVAL)


def savings(board: Board, means: Means) -> pd.DataFrame:
    """Labels saved at every set and size: against the best peer there, the best single peer, and LR with margin."""
    single = best_everywhere(board, means)
    rows = []
    for place in board.places:
        best = best_rival(board, means, place)
        ours = means[board.ours][place]
        against = {"best": best, "single": single, RIVAL: RIVAL}
        rows.append(
            {"data": place[0], "size": place[1], "peer": best, "single_peer": single}
            | {key: saved(board.points, ours, means[name][place]) for key, name in against.items()}
        )
    return pd.DataFrame(rows)


def drawn_savings(board: Board, seed: int = 0) -> pd.DataFrame:
    """Mean labels saved by size (and over all sizes, 0) in `DRAWS` resamples of sets, and of seeds within each.

    The best peers are chosen again in every resample.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(DRAWS):
        draw = {place: rng.integers(0, len(curves), len(curves)) for place, curves in board.curves[board.ours].items()}
        found = savings(board, means_of(board, draw)).set_index("data")
        picked = found.loc[rng.choice(board.sets, len(board.sets))]
        rows.append(picked[list(AGAINST)].mean().to_dict() | {"size": 0})
        rows += [part[list(AGAINST)].mean().to_dict() | {"size": size} for size, part in picked.groupby("size")]
    return pd.DataFrame(rows)


def needed(board: Board, method: str, place: Place, level: float) -> float:
    """Labels until the mean curve first has the level, as a share of the hundred; infinity if it never has."""
    asked, curve = board.long[method][place]
    return labels_to_reach(asked.tolist(), curve.tolist(), level) / float(board.points[-1])


def _report(report: Report, results: list[Result]) -> None:
    erring = [result for result in results if result["cell"]["strategy"] == "errs"]
    results = [result for result in results if result["cell"]["strategy"] != "errs"]
    board = board_of(results)
    cell = results[0]["cell"]
    seeds = sorted({len(curves) for curves in board.curves[board.ours].values()})
    report.intro(
        "scoreboard", labels=int(board.points[-1]), b=BATCH, n_train=cell["n_train"], n_test=cell["n_test"],
        seeds=" to ".join(str(n) for n in dict.fromkeys((seeds[0], seeds[-1]))), ours=_name(board.ours),
    )  # fmt: skip
    means = means_of(board)
    _headline(report, board, means)
    report.commentary()
    _losses(report, board, means)
    report.intro("scoreboard_rows")
    report.table(
        ["row", "what it is"], [[_name(name), _text(name)] for name in (*board.methods, peers.CEILING)], left=2
    )
    report.text("## The sets")
    report.table(
        ["set", "sources", "they vote on trusted samples"],
        [[name, data.SOURCED[name].text, "yes" if data.SOURCED[name].everywhere else "no"] for name in board.sets], left=3,
    )  # fmt: skip
    _ranks(report, board)
    _needed(report, board, means)
    _by_set(report, board)
    _budgets(report, board, means)
    _people(report, results, erring)
    _curves(report, board, means)
    report.data(_tidy(board))


def _name(method: str) -> str:
    return f"`{method}`"


def _text(method: str) -> str:
    if method == peers.CEILING:
        return "LR on trusted and all training samples with their reference labels"
    return peers.PEERS[method].text if method in peers.PEERS else peers.OURS[method]


def _headline(report: Report, board: Board, means: Means) -> None:
    found, drawn = savings(board, means), drawn_savings(board)
    single = str(found["single_peer"].iloc[0])
    report.text("## Labels saved")
    report.intro("scoreboard_saved", labels=int(board.points[-1]), ours=_name(board.ours), single=_name(single))
    rows = []
    for size in (0, *board.sizes):
        part = found if size == 0 else found[found["size"] == size]
        some = drawn[drawn["size"] == size]
        cells = []
        for key in AGAINST:
            low, high = np.quantile(some[key], [0.025, 0.975])
            cells.append(f"{part[key].mean():+.0f} ({low:+.0f} to {high:+.0f})")
        rows.append(["all" if size == 0 else str(size), *cells])
    named = f"best single peer, {_name(single)}"
    head = ["trusted samples", "best peer of each set, chosen afterwards", named, _name(RIVAL)]
    report.table(head, rows)
    report.text("By set, against the best peer there:")
    rows = []
    for name in board.sets:
        part = found[found["data"] == name].set_index("size")
        saved_here, rivals = part["best"].to_dict(), part["peer"].to_dict()
        rows.append(
            [name, *[f"{saved_here[size]:+.0f} ({rivals[size]})" if size in rivals else "–" for size in board.sizes]]
        )
    report.table(["set", *[f"{size} trusted" for size in board.sizes]], rows)


def _losses(report: Report, board: Board, means: Means) -> None:
    """Every place where a peer is better, and where the trusted samples alone are."""
    ours = board.ours
    rows = []
    for place in board.places:
        for label, at in (("no label", 0), (f"{board.points[-1]:.0f} labels", -1)):
            rival = max(board.rivals, key=lambda name, place=place, at=at: float(means[name][place][at]))  # type: ignore[misc]
            gap = estimate(board.curves[ours][place][:, at] - board.curves[rival][place][:, at])
            if gap.mean < -LOSS:
                theirs, mine = (f"{means[method][place][at]:.3f}" for method in (rival, ours))
                rows.append([place[0], str(place[1]), label, _name(rival), theirs, mine, gap.text(sign=True)])
    report.text("## Where it loses")
    report.intro("scoreboard_losses", ours=_name(ours), losses=len(rows), places=2 * len(board.places), least=LOSS)
    if rows:
        report.table(["set", "trusted", "after", "best peer", "its F1", f"{_name(ours)}", "difference"], rows, left=4)
    trusted = [
        [str(size), *[_alone(board, (name, size)).text(sign=True) for name in board.sets], _alone_mean(board, size)]
        for size in board.sizes
    ]
    report.text(f"{_name(ours)} less LR on the trusted samples alone (`trusted`), no label asked:")
    report.table(["trusted", *board.sets, "mean"], trusted)


def _alone(board: Board, place: Place) -> Estimate:
    return estimate(board.curves[board.ours][place][:, 0] - board.curves["trusted"][place][:, 0])


def _alone_mean(board: Board, size: int) -> str:
    return f"{np.mean([_alone(board, place).mean for place in board.places if place[1] == size]):+.3f}"


def _ranks(report: Report, board: Board) -> None:
    frame = board.frame()
    report.intro("scoreboard_ranks")
    head = ["row"]
    columns = []
    for size in board.sizes:
        part = frame[frame["size"] == size]
        ranks = mean_ranks(part, "area")
        columns.append((ranks, part.groupby(["method", "data"])["area"].mean().groupby("method").mean()))
        head += [f"rank, {size} trusted", f"area, {size}"]
    everywhere = frame.assign(data=frame["data"] + " " + frame["size"].astype(str))
    overall = mean_ranks(everywhere, "area")
    rows = []
    for method in overall.mean().sort_values().index:
        cells = [text for ranks, area in columns for text in (f"{ranks[method].mean():.1f}", f"{area[method]:.3f}")]
        rows.append([_name(str(method)), estimate(overall[method]).text(2), *cells])
    report.table([head[0], "mean rank", *head[1:]], rows)


def _needed(report: Report, board: Board, means: Means) -> None:
    report.intro("scoreboard_needed", labels=int(board.points[-1]), rival=_name(RIVAL))
    for size in board.sizes:
        places = [(name, size) for name in board.sets]
        rows = []
        for method in board.methods:
            shares = [needed(board, method, place, float(means[RIVAL][place][-1])) for place in places]
            most = [float(board.long[method][place][0][-1] / board.points[-1]) for place in places]
            shown = [_share(share, top) for share, top in zip(shares, most, strict=True)]
            median = float(np.median(shares)) if np.isfinite(np.sort(shares)[len(shares) // 2]) else float("inf")
            rows.append([_name(method), "–" if np.isinf(median) else f"{median:.2f}", *shown])
        report.text(f"{size} trusted samples:")
        report.table(["row", "median", *board.sets], rows)


def _share(share: float, most: float) -> str:
    """Labels needed; a dash for a row that asks nobody and does not start there."""
    if np.isinf(share):
        return f">{most:.1f}" if most else "–"
    return f"{share:.2f}"


def _by_set(report: Report, board: Board) -> None:
    frame = board.frame()
    report.text("## Macro-F1 by set and size")
    for size in board.sizes:
        for column, when in (("f1_0", "no label asked"), ("f1_100", f"{board.points[-1]:.0f} labels asked")):
            part = frame[frame["size"] == size]
            best = part.groupby(["method", "data"])[column].mean().groupby("data").max()
            rows = []
            for method in board.methods:
                mine = part[part["method"] == method]
                found = [estimate(mine.loc[mine["data"] == name, column]) for name in board.sets]
                cells = [one.text(best=best[name]) for one, name in zip(found, board.sets, strict=True)]
                rows.append([_name(method), *cells, f"{np.mean([one.mean for one in found]):.3f}"])
            if board.ceiling:
                tops = [estimate(board.ceiling.get(name, np.zeros(0))) for name in board.sets]
                rows.append(
                    [_name(peers.CEILING), *[top.text() for top in tops], f"{np.mean([top.mean for top in tops]):.3f}"]
                )
            report.text(f"### {size} trusted samples, {when}")
            report.table(["row", *board.sets, "mean"], rows)


def _budgets(report: Report, board: Board, means: Means) -> None:
    """Points of mean curves that are below the start by more than `COSTS`."""
    worst = {
        method: sorted((float((curve - curve[0]).min()), place) for place, curve in of.items())
        for method, of in means.items()
    }
    report.intro("scoreboard_budgets", most=COSTS)
    rows = []
    for method in board.methods:
        over = [f"{name} {size} ({drop:+.3f})" for drop, (name, size) in worst[method] if drop < -COSTS]
        listed = ", ".join(over[:6]) + (" …" if len(over) > 6 else "")
        rows.append([_name(method), f"{worst[method][0][0]:+.3f}", str(len(over)), listed])
    report.table(["row", "largest fall", "falls", "where (trusted samples)"], rows)


def _people(report: Report, results: Sequence[Result], erring: Sequence[Result]) -> None:
    """F1 after all labels with people who err, and what their errors cost."""
    if not erring:
        return
    right, wrong = board_of([result for result in results if result["cell"]["selector"] in ERRING]), board_of(erring)
    sets = [name for name, size in wrong.places if (name, size) in right.places]
    report.intro("scoreboard_people", errors=f"{peers.ERRORS:.0%}", labels=int(wrong.points[-1]), size=ERRING_SIZE)
    rows = []
    for method in wrong.methods:
        found = [wrong.curves[method][name, ERRING_SIZE][:, -1].mean() for name in sets]
        true = [right.curves[method][name, ERRING_SIZE][:, -1].mean() for name in sets]
        cells = [f"{one:.3f} ({one - other:+.3f})" for one, other in zip(found, true, strict=True)]
        rows.append([_name(method), *cells, f"{np.mean(found):.3f} ({np.mean(found) - np.mean(true):+.3f})"])
    report.table(["row", *sets, "mean"], rows)


def _curves(report: Report, board: Board, means: Means) -> None:
    report.intro("scoreboard_curves")
    shown = [name for name in board.methods if name in SHOWN]
    for name in board.sets:
        points = [
            {"method": method, "size": size, "x": size + asked, "y": value}
            for size in board.sizes
            for method in shown
            for asked, value in zip(board.points, means[method][name, size], strict=True)
        ]
        top = float(board.ceiling[name].mean()) if name in board.ceiling else None
        chart = figures.budget_curves(pd.DataFrame(points), title=name, ceiling=top)
        report.figure(name, f"{name}: test macro-F1 by trusted and asked labels", chart)


def _tidy(board: Board) -> pd.DataFrame:
    rows = []
    for method, of in board.curves.items():
        for (name, size), curves in of.items():
            for k, asked in enumerate(board.points):
                found = estimate(curves[:, k])
                rows.append({"data": name, "trusted": size, "method": method, "asked": int(asked), "seeds": found.n,
                             "f1": found.mean, "half": found.half})  # fmt: skip
    for name, values in board.ceiling.items():
        found = estimate(values)
        rows.append({"data": name, "trusted": max(board.sizes), "method": peers.CEILING, "asked": 0, "seeds": found.n,
                     "f1": found.mean, "half": found.half})  # fmt: skip
    return pd.DataFrame(rows).round(5)


EXPERIMENTS = (Experiment("scoreboard", "Scoreboard", _cells, _report),)
