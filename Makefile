# Everspot: `make` lists the targets. Each does the set-up that it needs.
PYTHON ?= python3
CORES := $(shell getconf _NPROCESSORS_ONLN)
# More than cores: what takes longest waits, for providers and for processes. One of three computes (tests/conftest.py).
JOBS ?= $(shell [ $(CORES) -gt 3 ] && echo 8 || echo $$(( 3 * $(CORES) )))
ARGS ?=
# Whose provider is set up: aws, gcp, or both ("aws gcp"). Demo and live play on one of them; what plays on AWS needs
# AWS's.
CLOUD ?= aws
AWS_ALONE := $(filter bench demo-pages review-demo,$(MAKECMDGOALS))
$(if $(AWS_ALONE),$(if $(filter aws,$(CLOUD)),,$(error $(AWS_ALONE) plays on AWS, with CLOUD=aws, and not on $(CLOUD))))
ON_ONE := $(filter demo image live,$(MAKECMDGOALS))
$(if $(ON_ONE),$(if $(filter 1,$(words $(CLOUD))),,$(error $(ON_ONE) plays on one cloud, with CLOUD=aws or CLOUD=gcp)))
# The rewritten assertions of six thousand tests are kept from one run to the next, also where Python is told to keep
# nothing; where Python keeps all bytecode, so that what pip has compiled is not compiled again.
KEPT := PYTHONDONTWRITEBYTECODE=

.PHONY: help setup image demo review-demo check test nightly second-opinion live docs demo-pages bench clean
.DEFAULT_GOAL := help

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Virtual environment, Pulumi engine, provider, dataset: all below .venv and .everspot (PYTHON=…, CLOUD=gcp to choose)
	@$(PYTHON) tools/setup $(strip $(CLOUD) $(WITH))

demo: setup ## All of it on this machine, no cloud account needed: provision, train, interrupt, resume, report (CLOUD=gcp)
	@.venv/bin/python -m everspot_local.demo --cloud $(CLOUD) $(ARGS)

image: setup ## The training image, baked as a root tree below .everspot/image and tested; as root, on Linux (CLOUD=gcp)
	@.venv/bin/everspot-local image --cloud $(CLOUD) $(ARGS)

# A forge is built from its Go modules, which only these two need.
review-demo nightly: WITH = forge

review-demo: setup ## A change's way on a real forge and its runner: pull request, review, merge, drift (the first set-up builds them: minutes)
	@.venv/bin/python -m everspot_local.demo.review $(ARGS)

# Tests hold both clouds' components and bridges to their providers.
test nightly second-opinion: CLOUD = aws gcp

test: setup ## All tests (ARGS="-k name" to choose, JOBS=1 for one at a time)
	@$(KEPT) .venv/bin/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

nightly: setup ## For the night: properties with ten times as many examples, and variants of what takes long
	@$(KEPT) .venv/bin/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --hypothesis-profile=nightly tests/core tests/simulator tests/store tests/cli $(ARGS)
	@$(KEPT) .venv/bin/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m nightly $(ARGS)

# Checkov takes a minute to install and 300 MB, and has its own pins of what is used here: it lives apart.
CHECKOV := 3.3.30
OPINION := .everspot/second-opinion

second-opinion: setup ## What Checkov, which is installed apart, says of the stacks, and of the faults that the rules' tests plant
	@[ -x $(OPINION)/bin/checkov ] || { .venv/bin/python -m venv $(OPINION) && $(OPINION)/bin/pip install -q checkov==$(CHECKOV); }
	@$(KEPT) .venv/bin/python -m pytest -m opinion tests/components/test_components_second_opinion.py $(ARGS)

live: setup ## A workload of 24 jobs simulated and lived through on this machine, and where the two differ (a quarter of an hour; CLOUD=gcp)
	@.venv/bin/python tests/e2e/live.py --cloud $(CLOUD) $(ARGS)

# Go's own sums say that it is what was published. Where Pulumi could be downloaded there need be no Go.
ACTIONLINT := .everspot/toolchain/bin/actionlint
$(ACTIONLINT):
	@GOBIN=$(abspath $(@D)) go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

check: setup ## What needs no run, in under a minute: lint, format, strict types, the import rule, the documents' links
	@.venv/bin/ruff check . && .venv/bin/ruff format --check .
	@if command -v go >/dev/null; then $(MAKE) -s $(ACTIONLINT) && $(ACTIONLINT); else echo "check: no Go, so that the workflows are not linted"; fi
	@.venv/bin/python -m mypy
	@.venv/bin/python -m pytest -q -p no:cacheprovider tests/architecture

# The site's builder has pins of its own, so it is installed apart.
MATERIAL := 9.8.2
SITE := .everspot/site-builder

docs: ## The documents as a site with search, .everspot/site/index.html, that needs no network to be read
	@[ -x $(SITE)/bin/mkdocs ] || { $(PYTHON) -m venv $(SITE) && $(SITE)/bin/pip install -q mkdocs-material==$(MATERIAL); }
	@NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --quiet --strict

demo-pages: setup ## The demonstration's terminal, report and web UI as files of the documents, docs/demo
	@.venv/bin/python tools/demo_pages.py

bench: setup ## Benchmarks, one JSON line per figure (ONLY=name for one)
	@.venv/bin/python -m bench $(ONLY)

clean: ## Remove what set-up and runs have made; Go's own caches stay
	rm -rf .venv .everspot build dist everspot.egg-info localcloud/build localcloud/everspot_localcloud.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
