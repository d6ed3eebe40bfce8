# Everything a person does here. `make` alone lists it.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ROOMS := specserver handlers control storage cell gateway instance_services clients pages menagerie
ARGS ?=

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The stamp of an install is newer than what it was made from; a lock that changes installs anew.
$(VENV)/.runtime: requirements.lock pyproject.toml
	@tools/install runtime "$(PYTHON)" "$(VENV)"

$(VENV)/.dev: requirements-dev.lock pyproject.toml
	@tools/install dev "$(PYTHON)" "$(VENV)"

# Beside the others' packages, with which it agrees.
$(VENV)/.docs: requirements-docs.lock $(VENV)/.runtime
	@tools/install docs "$(PYTHON)" "$(VENV)"

install: $(VENV)/.runtime ## create the virtual environment that `serve` needs

install-dev: $(VENV)/.dev ## create the virtual environment with the development tools too

serve: $(VENV)/.runtime ## start the service (as root it installs bubblewrap first); options: ARGS='--home DIR --port N'
	@tools/system-packages serve
	@exec $(BIN)/menagerie serve $(ARGS)

test: $(VENV)/.dev ## install what the tests need (as root, system packages too) and run them
	@tools/system-packages
	@$(BIN)/python -m tools.run_tests $(ARGS)

test-nightly: $(VENV)/.dev $(VENV)/.docs ## run the long tests as well
	@tools/system-packages nightly
	@$(BIN)/python -m tools.run_tests --nightly $(ARGS)

mutants: $(VENV)/.dev ## try the tests of ROOM=policy, boundary or storage: each small change must fail one
	@$(BIN)/python -m tools.mutants $(ROOM) $(ARGS)

# Two at a time, as each keeps one processor busy.
check: $(VENV)/.dev ## check formatting, lint, types, the OpenAPI documents and the Dockerfile
	@$(MAKE) --no-print-directory --jobs=2 --output-sync .style .types .documents .habits

.style:
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/hadolint Dockerfile

.types:
	@$(BIN)/mypy $(addprefix -p ,$(ROOMS)) -p contract_tests -p tools

.documents:
	@$(BIN)/python -m tools.lint_document openapi.yaml cell/openapi.yaml instance_services/duckdb/openapi.yaml instance_services/queues/openapi.yaml instance_services/search/openapi.yaml handlers/sso/scim.yaml
	@$(BIN)/python -m tools.released

.habits:
	@$(BIN)/python -m pytest -q -n0 contract_tests/habits

fix: $(VENV)/.dev ## format the code, apply the linter's fixes, and write generated pages anew
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .
	@$(BIN)/python -m tools.access_page
	@$(BIN)/python -m tools.events_page
	@$(BIN)/python -m tools.metrics_page

bench: $(VENV)/.dev ## measure performance against peers; a full run writes docs/benchmarks.md
	@$(BIN)/python -m tools.bench $(ARGS)

docs: $(VENV)/.docs ## build guides and API reference as a static site into site/
	@$(BIN)/python -m tools.site

lock: $(VENV)/.dev ## update the lock files from pyproject.toml (needs the uv package)
	@tools/lock

clean: ## remove the virtual environment, caches and the site
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .mutants dist site

.PHONY: .style .types .documents .habits help install install-dev serve test test-nightly mutants check fix bench docs lock clean
