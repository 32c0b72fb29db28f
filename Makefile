# Everspot: `make` lists the targets. Each does the set-up that it needs.
PYTHON ?= python3
CORES := $(shell getconf _NPROCESSORS_ONLN)
JOBS ?= $(shell [ $(CORES) -gt 4 ] && echo 4 || echo $(CORES))
ARGS ?=
STRICT := core/everspot_core store/everspot_store components/everspot

.PHONY: help setup demo test lint bench clean
.DEFAULT_GOAL := help

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Virtual environment, Pulumi engine, AWS provider, dataset: all below .venv and .everspot (PYTHON=… to choose one)
	@$(PYTHON) tools/setup

demo: setup ## The whole road on this machine, no cloud account needed: provision, train, interrupt, resume, report
	@.venv/bin/python -m everspot_local.demo $(ARGS)

test: setup ## All tests (ARGS="-k name" to choose, JOBS=1 for one at a time)
	@.venv/bin/python -m pytest -n $(JOBS) --dist loadfile $(ARGS)

lint: setup ## ruff on everything, mypy --strict on core, store and components
	@.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy --strict $(STRICT)

bench: setup ## Benchmarks, one JSON line per figure (ONLY=name for one)
	@.venv/bin/python -m bench $(ONLY)

clean: ## Remove what set-up and runs have made; Go's own caches stay
	rm -rf .venv .everspot build dist everspot.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
