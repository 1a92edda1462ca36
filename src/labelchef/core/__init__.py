"""The mathematics: objective, derivatives, solvers, influence. Pure functions on arrays, sweeps by an engine."""
