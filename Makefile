# `make demo`, `make check` and `make test`; all of them set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help setup demo check test docs docs-serve fuzz lint bench bench-check results-check clean

help:
	@echo "make setup  set up .venv and nothing else"
	@echo "make demo   set up .venv, run the whole story in five minutes: opponents, OMG, rivals, report (results/demo)"
	@echo "make check  set up .venv, run ruff, mypy, import-linter and the fast tests: for every save"
	@echo "make test   set up .venv, run ruff, mypy, import-linter and all tests but the slow ones"
	@echo "make docs   set up .venv, write the documentation as a site with search to build/site"
	@echo "make docs-serve  the same at http://localhost:8000, renewed while you write"
	@echo "make fuzz   set up .venv, try odd command lines, damaged files, kills and faults (docs/reliability.md)"
	@echo "make bench  set up .venv, measure speed and memory (docs/performance.md), write benchmarks/results.json"
	@echo "make bench-check  the same ratios, and fail when one misses its floor (benchmarks/floors.json)"
	@echo "make results-check  recompute the numbers of README.md and docs/results from the CSV files beside them"

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "Python 3.10 or newer is needed; set PYTHON=python3.x"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (a few minutes the first time)"
	@$(BIN)/python -m pip install -q -c constraints.txt torch
	@$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	@touch $@
	@echo "Ready. For the command omg: source $(BIN)/activate"

demo: $(STAMP)
	@$(BIN)/omg demo

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

check: lint
	$(BIN)/pytest -n 2 -m "not slow and not long" tests/unit

test: lint
	$(BIN)/pytest -n 2

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "build/site/index.html; with search: $(BIN)/python -m http.server -d build/site"

docs-serve: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

fuzz: $(STAMP)
	$(BIN)/python -W ignore -m tests.fuzz $(FUZZ)

bench: $(STAMP)
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.profile --json benchmarks/results.json
	$(BIN)/python -m benchmarks.scale --json benchmarks/results.json

bench-check: $(STAMP)
	$(BIN)/python -m benchmarks --check

results-check: $(STAMP)
	$(BIN)/python -m benchmarks.results_check

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
