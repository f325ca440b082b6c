# Strandline's commands. `make test` is the one that decides.

GO ?= go
BIN := bin/strandline

.PHONY: build
build:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $(BIN) ./cmd/strandline

.PHONY: lint
lint:
	$(GO) vet ./...
	$(GO) tool -modfile=tools/go.mod staticcheck ./...
	@out=$$($(GO) tool -modfile=tools/go.mod gofumpt -l $$(git ls-files '*.go')); \
	if [ -n "$$out" ]; then echo "not formatted by gofumpt:"; echo "$$out"; exit 1; fi

.PHONY: unit
unit:
	$(GO) test -race ./...
