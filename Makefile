# Two commands on a fresh machine with Python 3.11 and make: `make demo` and `make test`.
# Both set up .venv first; once it is there they start at once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help demo test lint types check clean

help:  ## what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

# torch comes first and pinned: a plain requirement would pull gigabytes of CUDA onto a machine without a GPU.
$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: $(READY)  ## train on WordNet's nouns, compare ghrq, naive and euclidean, write a report with pictures
	$(BIN)/ghrq reproduce wordnet --budget demo --out runs/wordnet-demo

# A process for each core, each with one thread: most tests are too small to share one computation.
test: $(READY)  ## run the tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile

lint: $(READY)  ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## static types
	$(BIN)/mypy

check: lint types test  ## all that CI runs

clean:  ## forget the environment
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
