# Every target makes its own virtual environment in .venv; all it needs is Python 3.11 or newer and a package index.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python

.PHONY: help mnist test check lint bench format clean

help:
	@echo "make mnist   train the MNIST example and print its accuracy on the test images"
	@echo "make test    run the tests, without those that need the network or much time"
	@echo "make check   formatting, lint, types, test/null and test/unit"
	@echo "make lint    formatting, lint and types alone"
	@echo "make bench   speed beside other libraries as a table of ratios, then compile time"
	@echo "make format  rewrite the sources in the project's format"
	@echo "make clean   remove $(VENV), the environments of the benchmark and the caches of the tools"

$(RUN):
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 11) else \
		"Python 3.11 or newer is needed, $(PYTHON) is %d.%d: try make PYTHON=python3.12" % v[:2])'
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(RUN) pyproject.toml
	$(RUN) -m pip install --quiet --editable .
	@touch $@

$(VENV)/installed-testing: $(RUN) pyproject.toml
	$(RUN) -m pip install --quiet --editable '.[testing]'
	@touch $@ $(VENV)/installed

mnist: $(VENV)/installed
	$(RUN) examples/beautiful_mnist.py

test: $(VENV)/installed-testing
	$(RUN) -m pytest -n 2 --ignore=test/external test

check: lint
	$(RUN) -m pytest -n 2 test/null test/unit

lint: $(VENV)/installed-testing
	$(RUN) -m ruff format --check .
	$(RUN) -m ruff check .
	$(RUN) -m mypy

# ARGS="--peers torch,jax --only softmax" and the like go to the program.
bench: $(VENV)/installed
	$(RUN) -m bench.run $(ARGS)
	$(RUN) -m bench.compile

format: $(VENV)/installed-testing
	$(RUN) -m ruff format .
	$(RUN) -m ruff check --fix .

clean:
	rm -rf $(VENV) bench/.envs .mypy_cache .ruff_cache .pytest_cache .hypothesis build
