# Everything here needs Go alone. `make help` lists the targets.
GO       ?= go
BIN      := $(CURDIR)/bin
VERSION  := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# A cache of this checkout's own: golangci-lint keys its entries by content and keeps absolute paths in them. In
# a shared cache it then looks for the nolint directives of this checkout in another one, which may be gone.
LINT_CACHE = $(BIN)/lint-cache
TOOLS    := $(BIN)/golangci-lint $(BIN)/gofumpt $(BIN)/govulncheck

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets.
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  %-10s %s\n", $$1, $$2 }'

.PHONY: build
build: ## Build ./k6, a k6 with this extension in it.
	$(GO) build -trimpath -o k6 ./cmd/k6

.PHONY: test
test: build ## Run all tests, the end-to-end tests of the built binary included.
	$(GO) test -timeout 20m ./...

.PHONY: race
race: ## Run the tests under the race detector.
	$(GO) test -race -short -timeout 30m ./...

.PHONY: lint
lint: $(TOOLS) ## Check formatting, lint rules, the TypeScript declarations, and known vulnerabilities.
	@unformatted="$$($(BIN)/gofumpt -l cmd cli gate internal llm scripts trace *.go 2>/dev/null)"; \
	if [ -n "$$unformatted" ]; then echo "gofumpt would change:"; echo "$$unformatted"; exit 1; fi
	GOLANGCI_LINT_CACHE=$(LINT_CACHE) $(BIN)/golangci-lint run --allow-serial-runners ./...
	./scripts/check-types.sh
	./scripts/vulncheck.sh $(BIN)/govulncheck

.PHONY: fmt
fmt: $(BIN)/gofumpt ## Format the sources.
	$(BIN)/gofumpt -w cmd cli gate internal llm scripts trace *.go

.PHONY: bench
bench: build ## Measure the client against two references, and the executor's punctuality; takes about 6 minutes.
	$(GO) run ./scripts/bench

.PHONY: demo
demo: build ## Build, start the simulated engine, search for its Safe QPS under a trace, and plan with it.
	./scripts/demo.sh

.PHONY: k6v2
k6v2: ## Build and test the same extension for k6 v2, in bin/k6v2.
	./scripts/k6v2.sh

.PHONY: clean
clean: ## Remove what the targets above have made.
	rm -rf k6 bin results

# The tools are pinned in a module of their own, so that they stay out of the extension's dependencies.
$(BIN)/golangci-lint: tools/go.mod
	cd tools && GOBIN=$(BIN) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(BIN)/gofumpt: tools/go.mod
	cd tools && GOBIN=$(BIN) $(GO) install mvdan.cc/gofumpt
$(BIN)/govulncheck: tools/go.mod
	cd tools && GOBIN=$(BIN) $(GO) install golang.org/x/vuln/cmd/govulncheck
