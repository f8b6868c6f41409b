# Two commands to begin with: `make demo` and `make test`. Both set up what they need by themselves.
SHELL  := bash
# modules are compiled once, not again by each of the many processes that the tests start
unexport PYTHONDONTWRITEBYTECODE
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
EXTRAS := plot,pandas,synth,train,detect,station,annotate,edge,export,cluster,remote,dev,docs
TORCH  ?= 2.13.0
# the versions that are installed, checked by their hashes; made by `make lock`
LOCK   ?= requirements.lock
LOCKED := --require-hashes --no-deps -r $(LOCK)
UV     := UV_PYTHON_DOWNLOADS=never $(BIN)/uv pip
PIP    := PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_COMPILE=1 PIP_PROGRESS_BAR=off $(BIN)/python -m pip
COMPILE = env $(UV) compile pyproject.toml $(foreach e,$(subst $(comma), ,$(EXTRAS)),--extra $e) --generate-hashes \
  --no-annotate --no-emit-package torch \
  --custom-compile-command "make lock (torch is locked by version in the Makefile: its builds differ between machines)"
# worker processes of the tests; `make test JOBS=0` runs them in one
JOBS   ?= 2
# each has one thread if nothing else is said: small networks take several times as long if more threads than cores wait for one another
THREADS := $(if $(filter 0,$(JOBS)),,OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1})
# `make docs SETTINGS=--check` refuses a page of settings that is out of date instead of mending it
SETTINGS ?=
# more for pytest, for example: make test ARGS="tests/test_labels.py -k bom"
ARGS   ?=
# conditions of `make test-matrix`, all if empty: oldest newest plain one-thread two-threads as-is
ONLY   ?=
# how long `make fuzz` attacks, in seconds (SECONDS is also a variable of bash, which counts for itself)
SECONDS_ := $(if $(filter command line,$(origin SECONDS)),$(SECONDS),600)
KILLS  ?= 20
FRAMES ?= 864000
# what `make reproduce` makes: data, runs and the model with its scores
SEED   ?= 0
PRODUCT ?= vehicle
PROFILE ?= industreal
DATA   ?= data/$(PRODUCT)
RUN    ?= runs/$(PRODUCT)-$(SEED)

comma  := ,

.DEFAULT_GOAL := help
.PHONY: help setup lock demo station test lint format docs dist edge test-matrix bench reproduce fuzz chaos soak licences \
  sbom audit clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(STAMP) ## Make .venv and install the package with all that development needs

# uv is quicker than pip by far and checks the same hashes. It does not read pip's settings, so pip is asked where uv finds
# nothing, and always for torch: a machine may keep a build of its own.
$(STAMP): pyproject.toml $(LOCK) | $(BIN)/uv
	@echo "Setting up $(VENV): $$($(BIN)/python --version), the versions of $(LOCK), torch $(TORCH)"
	@tools/step "install packages, checked against $(LOCK)" sh -c \
	  '$(UV) install --python $(BIN)/python $(LOCKED) || $(PIP) install $(LOCKED)'
	@tools/step "install torch $(TORCH)" env $(PIP) install torch==$(TORCH)
	@tools/step "install stormpsr from this folder" env $(PIP) install --no-deps --no-build-isolation --editable .
	@tools/step "check that all versions agree" env $(PIP) check
	@touch $@

$(BIN)/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { \
	  echo "stormpsr needs Python 3.10 or newer, but '$(PYTHON)' is $$($(PYTHON) --version 2>&1);" \
	    "run: make $(or $(MAKECMDGOALS),setup) PYTHON=/path/to/python3.11" >&2; exit 2; }
	@test -x $(BIN)/python || tools/step "make an environment in $(VENV)" $(PYTHON) -m venv $(VENV)
	@tools/step "install uv, which installs the rest" env $(PIP) install --require-hashes \
	  -r <(awk '/^uv==/ {on = 1} on {print} on && !/\\$$/ {exit}' requirements.lock)

# torch is locked by its version in this file, not by hash: which build is right (CUDA or CPU, and from which place) differs
# from machine to machine, and with it what else it needs. All the rest is the same for everybody, on any Python we support.
lock: | $(BIN)/uv ## Choose the newest allowed version of every package and write requirements.lock
	@tools/step "choose versions, write requirements.lock" $(COMPILE) --upgrade --universal --python-version 3.10 \
	  --constraint <(echo torch==$(TORCH)) --output-file requirements.lock

# for `make test-matrix`, and only for the Python at hand
build/newest.lock build/oldest.lock: pyproject.toml | $(BIN)/uv
	@mkdir -p build
	@tools/step "choose versions, write $@" $(COMPILE) --upgrade --python $(BIN)/python --output-file $@ \
	  --resolution $(if $(findstring oldest,$@),lowest-direct,highest)

demo: setup ## Draw an assembly that the model has not seen, recognise its steps, write a report and a video
	$(BIN)/stormpsr demo

station: setup ## Open the page beside the work place, on an assembly that is drawn once and shown again and again
	$(BIN)/stormpsr station

test: setup ## Run the tests
	$(THREADS) $(BIN)/python -m pytest -n $(JOBS) $(ARGS)

test-matrix: setup ## Run the tests with the oldest and the newest versions, other numbers of threads, a plain processor
	@JOBS=$(JOBS) VENV=$(VENV) tools/test_matrix $(ONLY) -- $(ARGS)

lint: setup ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup ## Mend what can be mended by itself
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Every line goes on where it was interrupted, or is skipped if it was done. Recordings have their true pace, and of their
# frames those that the networks look at. QUICK=1 makes a weaker model in a third of the time. The shipped model was made
# by these steps, the detector's in two parts: docs/results/end-to-end.md.
ifdef QUICK
N_TRAIN := 24
N_VAL   := 12
N_FAULTS := 12
N_TEST  := 16
N_WALKS := 3000
STEPS   := 600
EPOCHS  := -o train_encoder.epochs=6
else
N_TRAIN := 48
N_VAL   := 24
N_FAULTS := 48
N_TEST  := 40
N_WALKS := 20000
STEPS   := 11000
EPOCHS  := -o train_encoder.epochs=4 -o train_encoder.batches_per_epoch=100 -o train_encoder.learning_rate=0.002
endif
RENDERS = $(foreach k,1 2 3,$(DATA)-renders-$k)
reproduce: setup ## Make a model from nothing at true pace: draw the data, train both streams, tune, score (SEED=0, QUICK=1)
	$(BIN)/stormpsr synth generate $(DATA) --product $(PRODUCT) --profile $(PROFILE) --every 4 --size 320 \
	  --train $(N_TRAIN) --val $(N_VAL) --test $(N_TEST) --train-error-rate 0.35 --train-removal-rate 0.15
	$(BIN)/stormpsr synth generate $(DATA)-faults --product $(PRODUCT) --profile $(PROFILE) --every 4 --size 320 --seed 1 \
	  --train 0 --val $(N_FAULTS) --test 0 --val-error-rate 0.35 --val-removal-rate 0.15
	draw() { test -d $(DATA)-renders-$$1 || $(BIN)/stormpsr synth states $(DATA)-renders-$$1 --product $(PRODUCT) \
	  --per-state 0 --walks $(N_WALKS) --size 320 --seed $$((10 + $$1)) "$${@:2}"; }; \
	  (draw 1 --hands 0.95 && draw 3 --hands 0.75 --difficulty 0.5) & draw 2 --hands 0.95 && wait $$!
	test -f $(RUN)/detector/config.yaml || \
	  $(BIN)/stormpsr detect train $(DATA) $(addprefix --images ,$(RENDERS)) --out $(RUN)/detector --seed $(SEED) \
	  --preset synthetic --steps $(STEPS)
	for stage in encoder temporal; do \
	  $(BIN)/stormpsr train $$stage --preset synthetic --data $(DATA) $(addprefix --renders ,$(RENDERS)) --out $(RUN) \
	  --cache runs/cache -o encoder.weights=$(RUN)/detector -o encoder.frozen_reader=true -o seed=$(SEED) $(EPOCHS) \
	  --resume || exit; done
	test -d $(RUN)/model || \
	  $(BIN)/stormpsr model pack --stream $(RUN)/temporal/best --detector $(RUN)/detector --out $(RUN)/model --half \
	  --detector-stride 4
	$(BIN)/stormpsr tune $(RUN)/model --data $(DATA) --data $(DATA)-faults --objective f1+pos --among 20 \
	  --most-false-alarms 6 \
	  $(addprefix --method ,detection temporal average filter recurrent)
	$(BIN)/stormpsr evaluate $(RUN)/model --data $(DATA) --split test --out $(RUN)/test --store
	$(BIN)/stormpsr report $(RUN)/test --out $(RUN)/report.html

docs: setup ## Make the documents as a site, with search and API reference, in build/site
	@tools/step "write docs/settings.md from the config classes" $(BIN)/python tools/settings_page.py $(SETTINGS)
	@tools/step "put the pages together" $(BIN)/python tools/site_pages.py
	@if test -x $(BIN)/zensical; then \
	  tools/step "make the site, strictly" $(BIN)/zensical build --strict --config-file mkdocs.yml && \
	    echo "  open build/site/index.html"; \
	else echo "  the site itself needs Python 3.11 or newer: left out"; fi

dist: setup ## Build the source archive and the wheel into dist/, install the wheel elsewhere and use it
	@rm -rf dist build/lib build/bdist.*
	@tools/step "build the source archive, and the wheel from it" $(BIN)/python -m build --no-isolation
	@PYTHON=$(abspath $(BIN))/python tools/step "install the wheel into an empty environment and use it" tools/check_dist dist
	@ls dist

edge: setup ## Install the extra `edge` alone into an empty environment, and run an exported model there
	PYTHON=$(abspath $(BIN))/python tools/check_edge

bench: setup ## Compare the scoring protocols on the golden cases
	$(BIN)/python benchmarks/protocols.py tests/golden

fuzz: setup ## Damaged files for every reader, for SECONDS=600 with SEED=0
	$(BIN)/python benchmarks/fuzz.py --seconds $(SECONDS_) --seed $(SEED)

chaos: setup ## Kills, full and read-only disks, two writers, failing cameras (KILLS=20, SEED=0)
	$(BIN)/python benchmarks/chaos.py --kills $(KILLS) --seed $(SEED)

soak: setup ## A day of frames through recogniser, station and decoders (FRAMES=864000)
	$(BIN)/python benchmarks/soak.py recogniser --frames $(FRAMES)
	$(BIN)/python benchmarks/soak.py station --frames $(FRAMES)
	$(BIN)/python benchmarks/soak.py decoders --frames $(FRAMES)

licences: setup ## The licences of all packages that we depend on
	@$(BIN)/python tools/dependencies.py licences

sbom: setup ## A bill of materials (CycloneDX) in build/sbom.cdx.json
	@$(BIN)/python tools/dependencies.py sbom build/sbom.cdx.json

# strict: a package that could not be looked up is a failure, and not one without known weaknesses
audit: setup ## Look up known weaknesses of the locked packages (asks pypi.org)
	@$(BIN)/uv tool run pip-audit --strict --requirement $(LOCK) --require-hashes --disable-pip || { \
	  echo "error: weaknesses stand above, or a package 'could not be audited': then pypi.org/pypi/NAME/VERSION/json is out" \
	    "of reach (a mirror of the packages alone does not answer it); run make audit where it is not" >&2; exit 1; }

clean: ## Remove the environment, caches and build products
	rm -rf $(VENV) .venvs build dist .cache src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
