# Two commands do everything: `make demo` and `make test`. Both set up .venv by themselves; later runs reuse it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What is installed: the package with figures, or that and everything that development needs.
DEMO := $(VENV)/.demo
DEV := $(VENV)/.dev
# Compiled modules are kept, whatever this shell says: every command that tests start would compile them again.
export PYTHONDONTWRITEBYTECODE :=
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e

.PHONY: setup demo test lint types layers unit bench claims trust docs gallery clean

setup: $(DEV)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "lodekit needs Python 3.11 or newer; try: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

$(DEMO): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) ".[plot]"
	@touch $@

$(DEV): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) ".[dev]"
	@touch $(DEMO) $@

demo: $(DEMO)
	$(BIN)/lodekit demo

test: lint types layers unit

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV)
	$(BIN)/mypy

layers: $(DEV)
	$(BIN)/lint-imports --no-cache

# Files stay whole: what the tests of a file share is made once. They come in the order of tests/conftest.py, longest first.
unit: $(DEV)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -q

bench: $(DEV)
	$(BIN)/python benchmarks/algebra.py
	$(BIN)/python benchmarks/certificate.py
	$(BIN)/python benchmarks/dense.py
	$(BIN)/python benchmarks/learning.py
	$(BIN)/python benchmarks/priors.py
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/search.py --seeds 20
	$(BIN)/python benchmarks/units.py
	$(BIN)/python benchmarks/identification.py
	$(BIN)/python benchmarks/calibration.py --seeds 40
	$(BIN)/python benchmarks/cli.py

# Repeats the measurements behind published numbers; QUICK=1 takes less than five minutes.
claims: $(DEV)
	$(BIN)/python benchmarks/claims.py $(if $(QUICK),--quick)

# What cannot be shown in a minute; docs/trust.md says what comes out.
trust: $(DEV)
	$(BIN)/python benchmarks/trust.py --jobs 2

# The site, strictly, under build/docs; its pictures, drawn again beside it; and every example on its pages, executed.
docs: $(DEV)
	$(BIN)/python docs/pictures.py build/drawn
	$(BIN)/python -m sphinx --fail-on-warning --keep-going -q docs build/docs
	$(BIN)/python -m pytest -q README.md docs

# Pages of docs/gallery from the scripts of examples/; real records are looked for in LODEKIT_DATA.
gallery: $(DEV)
	$(BIN)/python docs/gallery/make.py

clean:
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .hypothesis
