"""Sources beside tables of votes: rules, labelling functions and automatic sources vote on every joined row, LLMs on theirs.

Their votes stand beside those that came as files. A label that is no class of the rows, and a name that another source has
already, are findings that must be mended first.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from labelchef.base.intake import ColumnRole, FileRole, Finding, Plan, Progress, Severity, no_progress
from labelchef.believe.functions import apply_functions, load_functions
from labelchef.believe.llm import read_llm_labels
from labelchef.believe.rules import Rule, apply_rules, read_rules
from labelchef.believe.vote_forms import PROBABILITY
from labelchef.data.intake.automatic import make_votes
from labelchef.data.intake.checking import ordered
from labelchef.data.intake.matching import ends_of_paths
from labelchef.data.intake.raw import Raw


def with_sources(
    raw: Raw, plan: Plan, automatic: Sequence[str] = (), *, seed: int = 0, progress: Progress = no_progress
) -> Raw:
    """The same rows with the votes of the rules and functions that the plan names, and of automatic sources by name."""
    rules = [rule for one in plan.of(FileRole.RULES) for rule in read_rules(Path(one.path))]
    found = raw if not rules else with_rules(raw, rules)
    for one in plan.of(FileRole.FUNCTIONS):
        found = with_functions(found, Path(one.path), classes=plan.classes, progress=progress)
    for one in plan.of(FileRole.LLM):
        found = with_llm(found, Path(one.path))
    if any(one.severity is Severity.ERROR for one in found.findings):
        return found  # what automatic sources learn from may be wrong
    for kind in automatic:
        votes = make_votes(kind, raw, seed=seed, progress=progress)
        if votes.empty:
            found = replace(found, findings=(*found.findings, _found_nothing(kind)))
        found = with_votes(found, votes, sorted(votes["source"].unique()))
    return found


def _found_nothing(kind: str) -> Finding:
    return Finding(
        "automatic_nothing", Severity.WARNING,
        f"the automatic source {kind!r} adds no votes: on trusted rows that it had not seen it was no better than chance. "
        "Give more trusted rows (--trusted), or write rules (--rules)",
    )  # fmt: skip


def with_rules(raw: Raw, rules: Sequence[Rule]) -> Raw:
    """The same rows with the votes of rules."""
    voted = with_votes(raw, apply_rules(rules, rows_of(raw)), [rule.name for rule in rules])
    return replace(voted, rules=(*raw.rules, *rules))


def with_functions(
    raw: Raw, path: Path, *, classes: Sequence[str] | None = None, progress: Progress = no_progress
) -> Raw:
    """The same rows with the votes of the labelling functions in a Python file, which is executed.

    `classes` are those that the user named, in the order of their ids. The classes of the rows do not stand in for them: they are
    in alphabetical order, which ids need not follow.
    """
    file = load_functions(path, classes=classes)
    voted = apply_functions(file.functions, rows_of(raw), classes=file.classes, progress=progress)
    names = [one.name for one in file.functions]
    return with_votes(replace(raw, findings=(*raw.findings, *voted.findings)), voted.votes, names)


def with_llm(raw: Raw, path: Path) -> Raw:
    """The same rows with the labels of an LLM in a JSONL file."""
    read = read_llm_labels(path, classes=raw.classes, strict=False)
    rows = (raw.train, raw.trusted, *(() if raw.test is None else (raw.test,)))
    ids = {key for one in rows for key in one.ids}
    ends = ends_of_paths(ids) if raw.columns(ColumnRole.IMAGE) else {}
    said = read.votes.assign(item=[key if key in ids else ends.get(key, key) for key in read.votes["item"].tolist()])
    known = said["item"].isin(ids)
    findings = list(raw.findings)
    others = said["item"][~known].unique()
    if len(others):
        findings.append(
            Finding(
                "llm-items", Severity.WARNING,
                f"{path.name}: {len(others)} items are in no other file, such as {str(others[0])!r}; their labels are left out",
                len(others), tuple(map(str, others[:5])),
            )
        )  # fmt: skip
    if read.n_without:
        findings.append(
            Finding(
                "llm-without-label", Severity.NOTE,
                f"{path.name}: {read.n_without} of {read.n_lines} lines have no label; they are no votes", read.n_without,
            )
        )  # fmt: skip
    votes = said[known].reset_index(drop=True)
    return with_votes(replace(raw, findings=tuple(findings)), votes, votes["source"].unique().tolist())


def with_votes(raw: Raw, votes: pd.DataFrame, names: Sequence[str]) -> Raw:
    """The same rows with more votes: a long table of item, source, label[, probability] of the sources `names`."""
    findings = list(raw.findings)
    taken = sorted(set(names) & set(raw.votes["source"].unique()))
    if taken:
        findings.append(
            Finding(
                "source_names", Severity.ERROR,
                f"{len(taken)} sources have a name that another source has already, such as {taken[0]!r}; rename one of them",
                len(taken), tuple(taken[:5]),
            )
        )  # fmt: skip
    if raw.fold_case:
        forms = {name.casefold(): name for name in raw.classes}
        votes = votes.assign(label=[forms.get(name.casefold(), name) for name in votes["label"].tolist()])
    if not raw.classes:  # then nothing else names a class
        raw = replace(raw, classes=tuple(ordered(set(votes["label"].tolist()))))
        findings = [one for one in findings if one.code != "few-classes" or len(raw.classes) < 2]
    unknown = sorted(set(votes["label"].unique()) - set(raw.classes))
    if unknown:
        cased = unknown[0].casefold() in map(str.casefold, raw.classes)
        by = votes.loc[votes["label"] == unknown[0], "source"].iloc[0]
        findings.append(
            Finding(
                "vote_class", Severity.ERROR,
                f"the source {by!r} votes for {unknown[0]!r}, which is no class; the classes are {_some(raw.classes)}. Correct "
                f"the label, or name all classes: --classes{'; or: --fold-case' if cased else ''}",
                len(unknown), tuple(unknown[:5]),
            )
        )  # fmt: skip
    silent = sorted(set(names) - set(votes["source"].unique()))
    if silent:
        findings.append(
            Finding(
                "silent_source", Severity.WARNING,
                f"{len(silent)} sources vote on no row, such as {silent[0]!r}; correct them, or leave them out",
                len(silent), tuple(silent[:5]),
            )
        )  # fmt: skip
    known = votes[votes["label"].isin(raw.classes) & ~votes["source"].isin(taken)]
    together = known if raw.votes.empty else pd.concat([raw.votes, known], ignore_index=True)
    if PROBABILITY in together.columns:  # a hard vote among soft ones
        together = together.assign(**{PROBABILITY: together[PROBABILITY].fillna(1.0)})
    return replace(raw, votes=together, findings=tuple(findings))


def rows_of(raw: Raw) -> pd.DataFrame:
    """All rows that sources may look at: training and trusted ones."""
    return pd.concat([raw.train.frame, raw.trusted.frame], ignore_index=True)


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:10])) + (" …" if len(names) > 10 else "")
