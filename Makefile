# Two commands to begin with: `make demo` and `make test`. Both set up what they need by themselves.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
EXTRAS := plot,synth,train,detect,dev
# worker processes of the tests; `make test JOBS=0` runs them in one
JOBS   ?= 2
# more for pytest, for example: make test ARGS="tests/test_labels.py -k bom"
ARGS   ?=
# where public annotations and golden vectors lie, if they are there
SHARED ?= ../shared

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint format bench clean

help: ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

setup: $(STAMP) ## Make .venv and install the package with all that development needs

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { \
	  echo "stormpsr needs Python 3.10 or newer, but '$(PYTHON)' is $$($(PYTHON) --version 2>&1);" \
	    "run: make $(or $(MAKECMDGOALS),setup) PYTHON=/path/to/python3.11" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --editable '.[$(EXTRAS)]'
	@touch $@

demo: setup ## Show what the package does (on MECCANO's annotations where SHARED has them, else on a small example)
	$(BIN)/stormpsr demo $(if $(wildcard $(SHARED)/data/meccano_psr),--data $(SHARED)/data)

test: setup ## Run the tests
	$(BIN)/python -m pytest -n $(JOBS) $(ARGS)

lint: setup ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup ## Mend what can be mended by itself
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## Compare the scoring protocols on the golden cases
	$(BIN)/python benchmarks/protocols.py tests/golden

clean: ## Remove the environment, caches and build products
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
