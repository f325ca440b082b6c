# Strandline's commands. `make test` is the one that decides.

GO ?= go
BIN := bin/strandline
# The product's own packages: what the race detector and staticcheck run on.
UNIT := $(shell $(GO) list ./... | grep -v -e '/test/chaos' -e '/test/clients')

.PHONY: build
build:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $(BIN) ./cmd/strandline

.PHONY: test
test: lint unit clients chaos

.PHONY: lint
lint:
	$(GO) vet ./...
	$(GO) tool -modfile=tools/go.mod staticcheck ./...
	@out=$$($(GO) tool -modfile=tools/go.mod gofumpt -l $$(git ls-files '*.go')); \
	if [ -n "$$out" ]; then echo "not formatted by gofumpt:"; echo "$$out"; exit 1; fi

# Unit, property, golden and script tests, with the race detector; fuzz targets
# run on their corpora. The race detector would sleep for a second at the end of each process.
.PHONY: unit
unit:
	GORACE=atexit_sleep_ms=0 $(GO) test -race $(UNIT)

# Unmodified Kafka clients and tools against the real binary.
.PHONY: clients
clients:
	$(GO) test -count=1 -timeout 20m ./test/clients/...

# kill -9 and power loss of the real binary under load. STRANDLINE_CHAOS_ROUNDS
# makes it longer or shorter.
.PHONY: chaos
chaos:
	$(GO) test -count=1 -timeout 30m ./test/chaos/...

# Kafka Streams counts a million words, exactly once, while brokers and it are killed 20
# times. `make chaos` has it with three kills.
.PHONY: streams
streams:
	STRANDLINE_CHAOS_ROUNDS=20 $(GO) test -count=1 -timeout 30m -v -run '^TestStreams$$' ./test/chaos/

# Simulations, from SEEDS seeds each that are drawn by lot. One that fails is in the name of its test,
# and STRANDLINE_SEEDS has it run again.
SEEDS ?= 100
SIMULATED := ./internal/peer ./internal/controlplane ./internal/fetcher ./internal/coordinator ./internal/session
.PHONY: simulate
simulate:
	first=$$(shuf -i 1000-4000000000 -n 1); STRANDLINE_SEEDS=$$first-$$((first + $(SEEDS) - 1)) $(GO) test -count=1 -timeout 60m \
	-run '^(TestRandomFaults|TestRandomChangesOfVoters|TestFaultsOnAQuorum|TestFaults|TestLeadershipMovesUnderCommits|TestRandomLives)$$' \
	$(SIMULATED)
	$(GO) test ./internal/controller ./internal/isr -count=1 -timeout 60m \
	-run '^(TestNoElectionLosesRecords|TestRandomRequests|TestHighWatermark)$$' -rapid.nofailfile -rapid.checks=$$(($(SEEDS) * 100))

# Every fuzz target for FUZZTIME each.
FUZZTIME ?= 10s
.PHONY: fuzz
fuzz:
	@for p in $(UNIT); do for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz' || true); do \
	echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$p || exit 1; done; done

# Three nodes on this machine, as one queue, with a live view of who leads what.
.PHONY: cluster
cluster: build
	$(BIN) dev --nodes 3

# Strandline beside Apache Kafka: a table of medians and ratios, in about 20
# minutes. BENCHFLAGS='-o docs/benchmarks.md' also writes the page.
.PHONY: bench
bench: build
	$(GO) run ./test/bench -strandline $(BIN) $(BENCHFLAGS)

# The same of three nodes as a cluster; BENCHFLAGS='-o docs/benchmarks-cluster.md'.
.PHONY: bench-cluster
bench-cluster: build
	$(GO) run ./test/bench -nodes 3 -strandline $(BIN) $(BENCHFLAGS)

# Strandline alone, small loads: to notice a regression by.
.PHONY: bench-short
bench-short: build
	$(GO) run ./test/bench -short -strandline $(BIN) $(BENCHFLAGS)
