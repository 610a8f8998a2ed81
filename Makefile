# Everything runs in .venv, which the first target makes. Other Python: make install PYTHON=python3.12
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BENCH_STAMP := $(VENV)/.bench-installed
ARCHIVE := $(VENV)/.spark.jsa
BESIDE := --dist loadscope --no-loadscope-reorder
PIP := $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help install demo bench test spark quick check format requirements clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(STAMP) ## make .venv with Postdate and all tools, versions pinned
	@echo "Postdate is installed in $(VENV); see: make help"

# Also made anew when the pins or the project's metadata change.
$(STAMP): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Postdate needs Python 3.11 or later; $(PYTHON) is not. Try: make $(MAKECMDGOALS) PYTHON=python3.11" >&2; \
		exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { \
		rm -rf $(VENV); \
		echo "$(PYTHON) could not make $(VENV); on Debian and Ubuntu: apt install python3-venv" >&2; \
		exit 1; }
	@echo "Installing into $(VENV) ..."
	@$(PIP) install -qq -r requirements/dev.txt
	@$(PIP) install -qq --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(STAMP) ## schedule messages and see them arrive, on a storage service on this machine
	@$(BIN)/postdate demo

bench: $(BENCH_STAMP) ## measure Postdate beside its peers, into bench/results.json; BENCH=--quick to see it work
	@$(BIN)/python -m bench $(BENCH)

# Anew after the others too: they might have moved a version that both pin.
$(BENCH_STAMP): requirements/bench.txt $(STAMP)
	@echo "Installing the peers into $(VENV) ..."
	@$(PIP) install -qq -r requirements/bench.txt
	@touch $@

# Most tests wait for leases, kills and clocks, so three run side by side, each file in one process (conftest.py). Those that
# measure real time run one after the other. Those on Spark share one session, in one process; beside it run those that
# start programs with sessions of their own.
test: $(STAMP) $(ARCHIVE) ## run all tests
	$(BIN)/pytest -n 3 $(BESIDE) -m "not alone" --ignore tests/spark --ignore samples/spark_bulk
	$(BIN)/pytest -m alone --ignore tests/spark --ignore samples/spark_bulk
	$(BIN)/pytest -n 2 $(BESIDE) tests/spark samples/spark_bulk

spark: $(STAMP) $(ARCHIVE) ## run the tests of bulk work on Spark alone
	$(BIN)/pytest -n 2 $(BESIDE) tests/spark samples/spark_bulk

# With it, each of the many Javas that tests start is ready in half the time.
$(ARCHIVE): tests/java_archive.py $(STAMP)
	@echo "Making an archive of Spark's classes ..."
	@$(BIN)/python $< $@

quick: $(STAMP) ## run the tests that need no storage service
	$(BIN)/pytest tests/unit

check: $(STAMP) ## lint, format, types, and who imports whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(STAMP) ## format the code, and fix what can be fixed without thought
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

COMPILE := CUSTOM_COMPILE_COMMAND="make requirements" $(BIN)/pip-compile --quiet --strip-extras \
	--annotation-style=line --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options

requirements: $(STAMP) ## pin the versions anew from pyproject.toml; UPGRADE=--upgrade takes newer ones
	$(COMPILE) $(UPGRADE) --output-file requirements/base.txt pyproject.toml
	$(COMPILE) $(UPGRADE) --constraint requirements/base.txt --extra dev --all-build-deps \
		--output-file requirements/dev.txt pyproject.toml
	$(COMPILE) $(UPGRADE) --constraint requirements/base.txt --constraint requirements/dev.txt --extra bench \
		--output-file requirements/bench.txt pyproject.toml

clean: ## remove .venv and all that tools left behind
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
