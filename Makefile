# On a fresh machine with Python 3.11 and make: `make demo` and `make test`. Both set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help demo test quick lint types check docs docs-serve hooks clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

# torch comes first and pinned: a plain requirement would pull gigabytes of CUDA onto a machine without a GPU.
$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: $(READY)  ## train on WordNet's nouns, compare ghrq, naive and euclidean, write a report with figures
	$(BIN)/ghrq reproduce wordnet --budget demo --out runs/wordnet-demo

# One process a core with one thread each: most tests are too small for several threads.
test: $(READY)  ## run all tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile

quick: $(READY)  ## run the tests without the slow ones, in about 90 seconds on 2 cores
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

lint: $(READY)  ## check the style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## check the types
	$(BIN)/mypy

check: lint types test  ## run everything that CI runs

# The second line is of mkdocs-material: it need not tell of plans for another major version in every build.
docs: $(READY)  ## run the examples and build the documentation into site/
	OMP_NUM_THREADS=1 $(BIN)/python scripts/render_examples.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(READY)  ## show the documentation on localhost, and follow changes of its pages
	test -f docs/examples/product_ids.md || OMP_NUM_THREADS=1 $(BIN)/python scripts/render_examples.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --dev-addr localhost:8000

hooks: $(READY)  ## check the style and the types at every commit
	$(BIN)/pre-commit install

clean:  ## remove the environment and all caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
