# Every target sets up what it needs: a virtual environment in .venv with the package (the demo), the tools and PyTorch (all others), and the
# libraries of the scoreboard (experiments).
PYTHON ?= python3
BIN := .venv/bin
USABLE := .venv/.usable
READY := .venv/.ready
PEERS := .venv/.peers
DOCS := .venv/.docs
# Real data sets for the tests marked `data` and for the benchmarks; both do without where the folder is missing.
export LABELCHEF_DATA ?= $(abspath ../shared/data)
export PIP_CONSTRAINT := $(abspath constraints.txt)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test test-all coverage lint format docs screenshots fuzz torture bench experiments experiments-quick clean

demo: $(USABLE)
	$(BIN)/labelchef demo

# Neighbouring tests stay in one process, which makes the fixtures of a module once; threads of PyTorch would wait for each other.
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=2 $(BIN)/python -m pytest -n 2 --dist worksteal
test: lint
	tools/system-parts
	$(PYTEST) -m "not slow"

# And those that take long: whole journeys in browsers, kills and faults, fuzzing, hundreds of simulated campaigns, the site of the docs.
test-all: test
	$(PYTEST) -m slow

# All tests, which then take nearly twice as long, and which lines of the package they run.
coverage: lint
	tools/system-parts
	$(PYTEST) --cov --cov-report=term

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The docs as a site in site/: opened from the file system or served by any web server, it loads nothing from elsewhere.
docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open site/index.html"

# The pictures of the page in docs/screenshots/, made by a real server and Chromium.
screenshots: $(READY)
	tools/system-parts
	$(BIN)/python -m tests.web.screenshots docs/screenshots

# Ten thousand damaged files over every reader, then hostile requests; prints tables.
FUZZ_CASES ?= 10000
fuzz: $(READY)
	$(BIN)/python -m tests.fuzz_files --cases $(FUZZ_CASES)
	$(BIN)/python -m tests.fuzz_requests

bench: $(READY)
	$(BIN)/python -m benchmarks

# A campaign of faults: some minutes; `make torture KILLS=1000 TIMES=20`, or HOURS=8, for a longer one. RESUME=1 goes on after an interrupt.
KILLS ?= 60
TIMES ?= 2
HOURS ?= 0
SEED ?= 0
torture: $(READY)
	tools/system-parts
	$(BIN)/python -m torture --kills $(KILLS) --times $(TIMES) --hours $(HOURS) --seed $(SEED) $(if $(RESUME),--resume)

# The paper's experiments and the scoreboard, written to experiments/results/; finished cells are kept, the same command goes on.
experiments: $(PEERS)
	$(BIN)/python -m experiments --publish

# Every table at reduced size, in experiments-quick/; from the start every time.
experiments-quick: $(PEERS)
	$(BIN)/python -m experiments --quick --fresh

clean:
	rm -rf .venv labelchef-demo labelchef-demo-home bench-results torture-results experiments-quick site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .coverage

$(USABLE): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "labelchef needs Python 3.11 or later; set PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[all]'
	@touch $@

$(READY): $(USABLE)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

# What builds the site of the docs; neither server nor PyTorch is needed for it.
$(DOCS): pyproject.toml constraints.txt
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@

# The libraries that the scoreboard compares with.
$(PEERS): $(READY)
	$(BIN)/python -m pip install --quiet --editable '.[dev,peers]'
	@touch $@
