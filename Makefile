# Targets of DESIGN.md. CI runs `make test`, then `make test-real`.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
REAL_STAMP := $(VENV)/.installed-real
RINGS := unit property conformance
REAL_RINGS := integration cluster cluster-1.36 browser faults attacks
BENCHES := adapter hpa nodes replay report vpa
INSTALL := $(BIN)/pip install --disable-pip-version-check --require-hashes -r

export PODSCALE_SHORT ?=

.PHONY: help setup setup-real tools demo check test test-real test-full docs-test lint bench \
  $(RINGS) $(REAL_RINGS) $(BENCHES:%=bench-%) lock dist clean

help:  ## what can be made
	@grep -hE '^[a-z%-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16
	@echo "one ring each:  $(RINGS) $(REAL_RINGS)"
	@echo "benches:        $(BENCHES:%=bench-%)"

setup: $(STAMP)  ## create .venv with exactly the locked packages

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || { \
	  echo "podscale needs Python 3.11 to 3.13, and $(PYTHON) is $$($(PYTHON) --version). Name another one: make PYTHON=python3.12 setup" >&2; exit 2; }
	@echo "Installing the locked packages into $(VENV), once: a minute or two, 400 MB."
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $(STAMP)

setup-real: $(REAL_STAMP)  ## and what only test-real needs: a browser's driver, Dask

$(REAL_STAMP): $(STAMP) requirements-real.lock
	$(INSTALL) requirements-real.lock
	@touch $(REAL_STAMP)

tools:  ## build the real programs the tests compare with (Go; once, into a cache)
	$(PYTHON) -m tests.tools build

demo: setup  ## see it move: make demo ARGS="--duration 90s"
	$(BIN)/podscale demo $(ARGS)

check: setup  ## one room in two minutes, lint, unit, property: make check ROOM=hpa
	PODSCALE_SHORT=1 $(BIN)/python -m tests.rings check $(ROOM)

test: setup  ## what needs Python alone, in ten minutes; says what it leaves out
	PODSCALE_SHORT=1 $(BIN)/python -m tests.rings test

test-real: setup-real  ## the rest, short form: real Kubernetes and Prometheus (Go builds them), Chromium
	PODSCALE_SHORT=1 $(BIN)/python -m tests.rings real

test-full: setup-real  ## the long forms: soaks, loads of ten minutes, thousands of random templates
	PODSCALE_SHORT= $(BIN)/python -m tests.rings full

$(RINGS): setup
	$(BIN)/python -m tests.rings $@

$(REAL_RINGS): setup-real
	$(BIN)/python -m tests.rings $@

docs-test: setup-real  ## run every command block of README and docs
	$(BIN)/python -m tests.rings docs

lint: setup  ## ruff, mypy strict, the arrows between the rooms, the budgets of lines
	$(BIN)/python -m tests.rings lint

bench: setup-real  ## all benches, some two hours; ends with every goal, HELD or MISSED
	$(BIN)/python -m tests.bench $(BENCHES)

$(BENCHES:%=bench-%): setup-real
	$(BIN)/python -m tests.bench $(@:bench-%=%)

LOCK = $(BIN)/uv pip compile --universal --python-version 3.11 \
	  --generate-hashes --no-header --no-emit-index-url --no-annotate --quiet
lock: setup  ## renew the locks of the tests, and what the image runs and is built with (deploy/)
	$(BIN)/python -m pip install --quiet uv
	$(LOCK) pyproject.toml --group dev -o requirements.lock
	$(LOCK) pyproject.toml --group real --constraint requirements.lock -o requirements-real.lock
	$(LOCK) pyproject.toml --constraint requirements.lock -o deploy/requirements.lock
	$(LOCK) --group pyproject.toml:build --constraint requirements.lock -o deploy/build.lock

dist: setup  ## the wheel, and a zipapp for a Python that has the packages of deploy/requirements.lock
	$(BIN)/python -m hatchling build --target wheel --directory dist
	rm -rf build/zipapp
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --no-deps --target build/zipapp dist/podscale-*.whl
	$(BIN)/python -m zipapp build/zipapp --compress --python '/usr/bin/env python3' \
	  --main podscale.cli.entry:main --output dist/podscale.pyz

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
