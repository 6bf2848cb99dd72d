# Every target makes what it needs: the environment in .venv, and jiyi installed into it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
COMPILED := $(VENV)/.compiled

.PHONY: demo test test-slow crash lint bench stress soak fuzz clean

demo: $(INSTALLED)
	@$(BIN)/jiyi demo

# On two cores at once; JOBS=0 runs them in one process.
JOBS ?= 2
test: $(COMPILED)
	$(BIN)/python -m pytest -m "not slow" -n $(JOBS) --dist loadgroup --no-loadscope-reorder

test-slow: $(INSTALLED)
	$(BIN)/python -m pytest -m slow

# Kills a writing process a thousand times; a run that was stopped goes on where it was.
KILLS ?= 1000
crash: $(INSTALLED)
	$(BIN)/python -m tests.crash.soak --kills $(KILLS) --state build/crash.jsonl

# Strange input of every kind: many more examples than the tests take, then guided by coverage where Atheris is to be had.
FUZZ_SECONDS ?= 60
fuzz: $(INSTALLED)
	JIYI_FUZZ_EXAMPLES=2000 $(BIN)/python -m pytest tests/fuzz
	-@$(BIN)/python -m pip install -q --disable-pip-version-check ".[fuzz]"
	$(BIN)/python -m tests.fuzz.atheris_targets --seconds $(FUZZ_SECONDS)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@# The packages under their import name, as installing them would lay them out.
	@rm -rf .typecheck && mkdir -p .typecheck/jiyi
	@ln -s $(CURDIR)/engine/* $(CURDIR)/kernels $(CURDIR)/models .typecheck/jiyi/
	MYPYPATH=.typecheck $(BIN)/mypy -p jiyi

# Two minutes of eight threads that mix every call, and two of four processes of which the writer is killed again and
# again; then threads once more with Numba's bounds checks, in a cache of their own.
SEED ?= 1
stress: $(INSTALLED)
	$(BIN)/python -X faulthandler -W error -m tests.stress.threads --seconds 120 --threads 8 --seed $(SEED)
	$(BIN)/python -X faulthandler -W error -m tests.stress.processes --seconds 120 --seed $(SEED)
	NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(CURDIR)/build/numba-checked \
	  $(BIN)/python -X faulthandler -W error -m tests.stress.threads --seconds 60 --threads 8 --seed $(SEED)

# A million adds, updates and deletes and a hundred thousand searches: memory and disk must end where they began.
soak: $(INSTALLED)
	$(BIN)/python -m tests.stress.soak --operations 1000000 --searches 100000

bench: $(INSTALLED)
	$(BIN)/python -m pip install -q --disable-pip-version-check ".[bench]"
	@mkdir -p .benchmarks
	$(BIN)/python -m pytest benches --benchmark-json=.benchmarks/latest.json
	$(BIN)/python benches/compare.py --json .benchmarks/peers.json
	$(BIN)/python benches/scale.py

# Installed from a copy, not linked: tests run against what users get. Done again when a source file is newer.
$(INSTALLED): $(shell find engine kernels models -type f -not -path '*/__pycache__/*') pyproject.toml
	@command -v c++ >/dev/null 2>&1 || command -v g++ >/dev/null 2>&1 || command -v clang++ >/dev/null 2>&1 || { \
	  echo "jiyi needs a C++ compiler to build hnswlib: install one (Debian: apt-get install g++; macOS: xcode-select --install) and run make again" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "jiyi needs Python 3.11 or newer; $$($(PYTHON) --version) was found. Name another: make PYTHON=python3.12 ..." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing jiyi into $(VENV) (the first time takes a minute or two: hnswlib is compiled) ..."
	@$(BIN)/python -m pip install -q --disable-pip-version-check ".[test,lint]"
	@touch $@

# Once, on all cores: otherwise every process of the tests would compile all of them, each for a minute.
$(COMPILED): $(INSTALLED)
	@echo "Compiling the kernels (a minute) ..."
	@$(BIN)/python -m tests.warm
	@touch $@

clean:
	rm -rf $(VENV) .typecheck build dist *.egg-info
