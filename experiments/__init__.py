"""The paper's experiments and the scoreboard: `python -m experiments NAME …` (docs/experiments.md)."""
