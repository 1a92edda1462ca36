"""The model: objective, derivatives, solvers, influence, the final classifier; engines, where a sweep over X runs."""
