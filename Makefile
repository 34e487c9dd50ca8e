# Two commands do all the set-up: `make demo` and `make test`. Both may be run again at any time; the set-up is
# done once, and again when pyproject.toml has changed. PYTHON=python3.12 names another interpreter, TORCH=...
# another build of torch, ARGS="-k rollout" what pytest gets.

PYTHON ?= python3
TORCH ?= torch==2.13.0
PAGE ?= build/demo/page.html
ARGS ?=

VENV := .venv
PY := $(VENV)/bin/python
STAMPS := $(VENV)/stamps
PIP := $(PY) -m pip --disable-pip-version-check -qq
SAY := @printf '==> %s\n'

# The notebooks that are there are executed as tests.
NOTEBOOKS := $(wildcard notebooks/*.ipynb)

QUICK_BENCHMARKS := own_attention compare scaling

.DEFAULT_GOAL := help
.PHONY: help demo test environment check real pytest format notebooks bench bench-all bench-found coverage bundled clean
.DELETE_ON_ERROR:
.NOTPARALLEL:

help:
	@printf '%s\n' \
	  'make demo        set up, run the main job on the bundled model, say where the page is' \
	  'make test        set up, run all checks: ruff, mypy, the floors, pytest' \
	  'make format      lay out the code as `make test` wants it' \
	  'make notebooks   execute the notebooks and keep what they print' \
	  'make bench       time our attention and compare(), write the results (some minutes)' \
	  'make bench-NAME  run benchmarks/NAME.py alone: make bench-tasks, bench-tasks_vision, bench-swapping, …' \
	  'make bench-trends  train small models and look for the trends that papers report (ten minutes)' \
	  'make bench-causes  causes found on planted models, beside what was built in (half an hour)' \
	  'make bench-found  heads known from elsewhere, found blind in two pretrained models (a quarter of an hour)' \
	  'make bench-all   all of them, training included (some hours)' \
	  'make coverage    capture every model type of transformers, write benchmarks/COVERAGE.md' \
	  'make bundled     train the bundled model again' \
	  'make clean       remove the environment, what was built and what was fetched'

demo: $(STAMPS)/package
	$(SAY) 'explaining a few sentences with the bundled model'
	@mkdir -p $(dir $(PAGE))
	@$(PY) -m attnprobe demo --out $(PAGE)
	$(SAY) 'the page is $(PAGE): open it in a browser'

test: real check pytest

# ---------------------------------------------------------------- the parts of `make test`, in this order

real: environment
	$(SAY) 'pretrained models for the tests, in .cache'
	@$(PY) tests/real/fetch.py

check: environment
	$(SAY) 'ruff: lint'
	@$(PY) -m ruff check --quiet .
	$(SAY) 'ruff: layout'
	@$(PY) -m ruff format --check --quiet . || { $(PY) -m ruff format --check .; exit 1; }
	$(SAY) 'mypy: types'
	@$(PY) -m mypy --no-error-summary
	$(SAY) 'import-linter: imports go down only'
	@$(VENV)/bin/lint-imports > $(VENV)/floors.txt 2>&1 || { cat $(VENV)/floors.txt; exit 1; }

pytest: environment
	$(SAY) 'pytest: tests, doctests, notebooks; shapes enforced'
	@$(PY) -m pytest -n auto --nbmake tests attnprobe $(NOTEBOOKS) $(ARGS)

# ---------------------------------------------------------------- other work

format: environment
	$(SAY) 'ruff: repairs and layout'
	@$(PY) -m ruff check --quiet --fix . ; $(PY) -m ruff format .

notebooks: environment
	$(SAY) 'executing the notebooks in place'
	@$(PY) -m pytest --nbmake --overwrite -p no:cacheprovider $(NOTEBOOKS)

# Those that train nothing and fetch nothing; any of the others by its name: make bench-swapping.
bench: $(addprefix bench-,$(QUICK_BENCHMARKS))

bench-all: $(patsubst benchmarks/%.py,bench-%,$(wildcard benchmarks/*.py))

bench-found: bench-found_blind

bench-%: environment
	$(SAY) 'running benchmarks/$*.py'
	@$(PY) benchmarks/$*.py

coverage: environment
	$(SAY) 'capturing a tiny model of every type in transformers (some minutes)'
	@$(PY) benchmarks/coverage.py

bundled: environment
	$(SAY) 'training the bundled model'
	@$(PY) -m attnprobe.models.bundled.train

clean:
	$(SAY) 'removing $(VENV), build, dist and caches'
	@rm -rf $(VENV) build dist .cache .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find attnprobe tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# ---------------------------------------------------------------- the set-up: a stamp says that a step was done

environment: $(STAMPS)/test

$(STAMPS)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo 'attnprobe needs Python 3.11 or newer, and $(PYTHON) is not; name another one: make PYTHON=python3.12 ...' >&2; \
	  exit 1; }
	$(SAY) 'making an environment in $(VENV)'
	@$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

# torch comes first and pinned: left to itself, pip would take a build for CUDA of several GB where it finds one.
$(STAMPS)/torch: $(STAMPS)/python
	$(SAY) 'installing $(TORCH) (some hundred MB, minutes on a slow line)'
	@$(PIP) install '$(TORCH)'
	@touch $@

$(STAMPS)/package: $(STAMPS)/torch pyproject.toml
	$(SAY) 'installing attnprobe and what it needs'
	@$(PIP) install --editable .
	@touch $@

$(STAMPS)/test: $(STAMPS)/package
	$(SAY) 'installing what the tests need'
	@$(PIP) install --editable '.[test]'
	@touch $@
