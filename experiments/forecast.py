"""Whether the forecast of the next labels holds, by hindsight: `python -m experiments forecast`.

Campaigns of the default settings on the sets of the scoreboard, 100 trusted samples, batches of 20. After 40, 60, … labels the
forecast of the next 100 is made from the rounds so far, and compared with the gain on the test part when they are there. Beside
it stand two naive forecasts: the gain of the last 100 labels again (of as many as there are, scaled), and no gain. Prints a
table in Markdown.
"""

import json
from pathlib import Path
from typing import Any

from experiments import data
from labelchef import LabelCleaner
from labelchef.domain.records import RoundRecord

TRUSTED, BATCH, BUDGET, TRAIN, TEST = 100, 20, 240, 800, 2000
NEXT = 100


def campaign(job: tuple[str, int, str]) -> list[dict[str, Any]]:
    """The rounds of a campaign: labels, metrics on the trusted samples and on test, and the expected influence of the next 100."""
    name, seed, folder = job
    kept = Path(folder) / f"{name}-{seed}.json"
    if kept.exists():
        return list(json.loads(kept.read_text()))
    problem = data.sourced(name, seed, TRUSTED, n_train=TRAIN, n_test=TEST)
    cleaner = LabelCleaner(budget=BUDGET, batch_size=BATCH, random_state=seed)
    cleaner.fit(
        problem.X, votes=problem.votes, X_val=problem.X_val, y_val=problem.y_val, votes_val=problem.votes_val,
        X_test=problem.X_test, y_test=problem.y_test, classes=list(range(problem.n_classes)),
    )  # fmt: skip
    rows: list[dict[str, Any]] = []

    def note(record: RoundRecord) -> None:
        assert record.test is not None, "there are test samples"
        ahead = expected_change(cleaner) if record.spent % 40 == 0 and record.spent + NEXT <= BUDGET else None
        found = {"validation": record.validation.as_dict(), "test": record.test.as_dict()}
        rows.append({"spent": record.spent, **found, "expected": ahead})

    note(cleaner.rounds_[0])
    cleaner.run(lambda batch: problem.y[batch.indices], on_round=note)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(rows))
    return rows


def expected_change(cleaner: LabelCleaner) -> float:
    """The sum of the expected influences of the next 100 samples, each by itself: a change of the steering loss."""
    session = cleaner._session
    items = session.select(NEXT).indices
    scored, believed = session.scored(items), session.posterior()[items]
    return float((scored.by_answer * believed).sum() / session.objective.engine.n_rows)
