# Everspot: `make` lists the targets. Each does the set-up that it needs.
PYTHON ?= python3
CORES := $(shell getconf _NPROCESSORS_ONLN)
# Three workers per core: the longest tests mostly wait for providers and processes (tests/conftest.py).
JOBS ?= $(shell [ $(CORES) -gt 3 ] && echo 8 || echo $$(( 3 * $(CORES) )))
ARGS ?=
# The clouds whose Pulumi providers are set up: aws, gcp, or both ("aws gcp"). `demo` and `live` run on one cloud.
CLOUD ?= aws
AWS_ALONE := $(filter bench demo-pages review-demo,$(MAKECMDGOALS))
$(if $(AWS_ALONE),$(if $(filter aws,$(CLOUD)),,$(error $(AWS_ALONE) runs on AWS, with CLOUD=aws, and not on $(CLOUD))))
ON_ONE := $(filter demo image live,$(MAKECMDGOALS))
$(if $(ON_ONE),$(if $(filter 1,$(words $(CLOUD))),,$(error $(ON_ONE) runs on one cloud, with CLOUD=aws or CLOUD=gcp)))
# A cluster inside Kubernetes is declared by Pulumi's Kubernetes provider, beside that of AWS.
demo: WITH = $(if $(filter kubernetes,$(CLOUD)),provider-kubernetes)
# pytest caches the compiled tests, also where PYTHONDONTWRITEBYTECODE is set for other programs.
KEPT := PYTHONDONTWRITEBYTECODE=

.PHONY: help setup image demo review-demo check test nightly second-opinion live docs demo-pages bench clean
.DEFAULT_GOAL := help

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install the environment, Pulumi engine, provider and dataset below .venv and .everspot (PYTHON=…, CLOUD=gcp)
	@$(PYTHON) tools/setup $(strip $(CLOUD) $(WITH))

demo: setup ## Provision, train, interrupt, resume and report on a local cloud; no cloud account needed (CLOUD=gcp, CLOUD=kubernetes)
	@.venv/bin/python -m everspot_local.demo --cloud $(CLOUD) $(ARGS)

image: setup ## Bake the training image as a root tree below .everspot/image and test it; as root, on Linux (CLOUD=gcp)
	@.venv/bin/everspot-local image --cloud $(CLOUD) $(ARGS)

# Only these targets need what is built from Go modules, the forge and the control plane of Kubernetes, and users' own
# storage libraries.
review-demo: WITH = forge
test: WITH = libraries
nightly: WITH = forge kubernetes provider-kubernetes libraries

review-demo: setup ## Review, merge and apply a pull request on a real forge (the first set-up builds it in minutes)
	@.venv/bin/python -m everspot_local.demo.review $(ARGS)

# The tests need both clouds' providers.
test nightly second-opinion: CLOUD = aws gcp

test: setup ## Run all tests (ARGS="-k name" selects, JOBS=1 runs one at a time)
	@$(KEPT) .venv/bin/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

nightly: setup ## Run property tests with ten times as many examples, the slow variants, and the demo on Kubernetes
	@$(KEPT) .venv/bin/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --hypothesis-profile=nightly tests/core tests/simulator tests/store tests/cli tests/clouds/test_clouds_kubernetes.py tests/clouds/test_clouds_kubernetes_faults.py tests/clouds/test_clouds_kubernetes_jobs.py tests/clouds/test_clouds_kubernetes_nodes.py tests/clouds/test_clouds_kubernetes_preflight.py $(ARGS)
	@$(KEPT) .venv/bin/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m nightly $(ARGS)
	@.venv/bin/python -m everspot_local.demo --cloud kubernetes

# Checkov takes a minute and 300 MB to install and pins its own versions, so it has its own environment.
CHECKOV := 3.3.30
OPINION := .everspot/second-opinion

second-opinion: setup ## Check the stacks with Checkov, which is installed in its own environment
	@[ -x $(OPINION)/bin/checkov ] || { .venv/bin/python -m venv $(OPINION) && $(OPINION)/bin/pip install -q checkov==$(CHECKOV); }
	@$(KEPT) .venv/bin/python -m pytest -m opinion tests/components/test_components_second_opinion.py $(ARGS)

live: setup ## Run 24 jobs in the simulator and on the local cloud, and compare the two (15 minutes; CLOUD=gcp)
	@.venv/bin/python tests/e2e/live.py --cloud $(CLOUD) $(ARGS)

# Go verifies the module's checksum. Go is optional where the Pulumi engine can be downloaded.
ACTIONLINT := .everspot/toolchain/bin/actionlint
$(ACTIONLINT):
	@GOBIN=$(abspath $(@D)) go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

check: setup ## Lint, format, strict types, import rules and links of the documents, in under a minute
	@.venv/bin/ruff check . && .venv/bin/ruff format --check .
	@if command -v go >/dev/null; then $(MAKE) -s $(ACTIONLINT) && $(ACTIONLINT); else echo "check: no Go, so that the workflows are not linted"; fi
	@.venv/bin/python -m mypy
	@.venv/bin/python -m pytest -q -p no:cacheprovider tests/architecture

# mkdocs-material pins its own versions, so it has its own environment.
MATERIAL := 9.8.2
SITE := .everspot/site-builder

docs: ## Build the documents as an offline site with search: .everspot/site/index.html
	@[ -x $(SITE)/bin/mkdocs ] || { $(PYTHON) -m venv $(SITE) && $(SITE)/bin/pip install -q mkdocs-material==$(MATERIAL); }
	@NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --quiet --strict

demo-pages: setup ## Write the demo's terminal, report and web UI as static files to docs/demo
	@.venv/bin/python tools/demo_pages.py

bench: setup ## Run the benchmarks, one JSON line per figure (ONLY=name runs one)
	@.venv/bin/python -m bench $(ONLY)

clean: ## Remove what set-up and runs wrote; Go's own caches stay
	rm -rf .venv .everspot build dist everspot.egg-info localcloud/build localcloud/everspot_localcloud.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
