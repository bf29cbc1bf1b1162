# Each target is one or two go commands; CONTRIBUTING.md says what they are for.
SHELL := /bin/bash
TAGS  := -tags grpcnotrace
GO    := CGO_ENABLED=0 go
# The commit, for "proa version"; without a git repository that can be read there is none.
STAMP := -buildvcs=$(shell git status --porcelain >/dev/null 2>&1 && echo true || echo false)
LINT  := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.11.0

.PHONY: build release release-check up down test packages unit e2e race lint fuzz conformance compat compat-loops bench bench-attacks gate gateway-conformance operators otlp upgrade generate

build: bin/kubectl bin/containerd bin/runc
	$(GO) build $(TAGS) $(STAMP) -trimpath -ldflags "-s -w" -o bin/ ./cmd/...

# kubectl comes from pinned modules and is kept in a cache folder; the first build takes a minute or two.
bin/kubectl: test/upstream/pins/go.mod
	mkdir -p bin && cp --remove-destination "$$($(GO) run ./test/upstream/cmd kubectl)" bin/kubectl && touch bin/kubectl

# What a node runs beside proa: containerd, its shim and runc, from pinned modules, kept in the same cache folder.
bin/containerd bin/containerd-shim-runc-v2 bin/runc &: $(wildcard parts/*.go parts/pins/*/go.sum)
	mkdir -p bin && $(GO) run ./parts/cmd -o bin && touch -c bin/containerd bin/containerd-shim-runc-v2 bin/runc

# One file that carries all others inside; see parts/bundle. It unpacks them into the data folder when it is first used.
release: build
	$(GO) run ./parts/cmd -pack parts/bundle/parts.bin $(addprefix bin/,containerd containerd-shim-runc-v2 runc proa-cni pause kubectl)
	$(GO) build -tags "grpcnotrace release" $(STAMP) -trimpath -ldflags "-s -w" -o bin/release/proa ./cmd/proa

# What was released, alone in a folder: up, a Pod, down --purge. Needs root.
release-check: release
	PROA_RELEASE=$(CURDIR)/bin/release/proa $(GO) test $(TAGS) -count=1 -run '^TestRelease$$' ./test/e2e

up: build
	bin/proa up

down:
	bin/proa down

test: build packages e2e

# Tests are short and there is memory enough, so the garbage collector of the compiler, the linker and the tests runs rarely.
TEST  := GOGC=400 $(GO) test $(TAGS) -vet=off -p 6 -timeout 20m
# The packages whose tests take longest begin first, so that none of them is left running alone at the end.
SLOW  := $(addprefix ./,test/ui test/robustness test/crash store/singlemember test/controllers network/service network/networkpolicy server run server/h2 network/noderoutes)

# Every package but the e2e tests. Those that start servers take the binary that was built.
packages: build
	-$(GO) run ./test/upstream/cmd kubectl kubectl-old >/dev/null
	$(GO) vet $(TAGS) ./...
	PROA_BUILD=1 PROA_BIN=$(CURDIR)/bin/proa $(TEST) $(SLOW) $$($(GO) list ./... | grep -v /test/e2e)
	cd examples/operator && $(TEST) ./...

# The packages whose tests need neither root nor a browser.
unit:
	$(GO) vet $(TAGS) ./...
	$(TEST) $(filter-out ./test/ui ./network/%,$(SLOW)) $$($(GO) list ./... | grep -vE '/(test/e2e|test/ui|test/images/build|node|network)(/|$$)')
	cd examples/operator && $(TEST) ./...

e2e: build
	-$(GO) run ./test/upstream/cmd kubectl kubectl-old helm helm3 >/dev/null
	PROA_BIN=$(CURDIR)/bin/proa $(GO) test $(TAGS) -count=1 -parallel 5 -timeout 25m ./test/e2e

race:
	-$(GO) run ./test/upstream/cmd kubectl kubectl-old >/dev/null
	CGO_ENABLED=1 go test $(TAGS) -race -timeout 40m ./...

lint:
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); echo 'run gofmt -w on these files'; exit 1; }
	$(GO) vet $(TAGS) ./...
	PROA_LINK_TEST=1 $(GO) test $(TAGS) -count=1 -run . .
	$(GO) run $(LINT) run --build-tags grpcnotrace ./...

FUZZTIME ?= 5s
fuzz:
	@set -e; for f in $$(grep -rlE --include='*_test.go' '^func Fuzz' . | sort); do for t in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' $$f); do \
	  echo "$$t in $$(dirname $$f)"; $(GO) test $(TAGS) -run '^$$' -fuzz "^$$t$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x ./$$(dirname $$f); done; done

conformance: build
	$(GO) run $(TAGS) ./test/conformance -focus '$(FOCUS)' -tier '$(TIER)'

# The tests recorded as passing; what has passed once keeps passing. Those that need containers need root, and only quick ones run.
gate: build
	$(GO) run $(TAGS) ./test/conformance -gate
	@if [ "$$(id -u)" = 0 ]; then set -x; $(GO) run $(TAGS) ./test/conformance -gate -real -gate-limit 12s; \
	else echo 'The tests that need containers were left out: they need root.'; fi

# What we did not write: cert-manager, metrics-server and an operator of kubebuilder's kind in containers (as root), and controller-runtime's own tests.
operators: build
	PROA_OPERATORS=1 PROA_BIN=$(CURDIR)/bin/proa $(GO) test $(TAGS) -count=1 -v -timeout 60m ./test/operators
	$(GO) run $(TAGS) ./test/operators/cmd controller-runtime

# The conformance suite of the Gateway API; RUN=HTTPRouteWeight runs one test and writes nothing. Needs root.
gateway-conformance: build
	$(GO) run $(TAGS) ./test/gatewaysuite $(if $(RUN),-run $(RUN))

# The export of spans to the OpenTelemetry Collector, which is built when it is not in the cache.
otlp:
	PROA_OTLP=1 $(GO) test $(TAGS) -count=1 -v ./test/otlp

# Started on the folder of an earlier version under load, and back. The earlier version is built once, some minutes.
upgrade: build
	PROA_UPGRADE=1 PROA_BIN=$(CURDIR)/bin/proa $(GO) test $(TAGS) -count=1 -v -timeout 20m -run '^TestUpgrade' ./test/crash

compat: build
	$(GO) run $(TAGS) ./test/compat -docs docs/compat.md

# Controllers and scheduler side by side with upstream's; RUN=job,quota plays only scenarios with these beginnings.
compat-loops: build
	$(GO) run $(TAGS) ./test/loops $(if $(RUN),-run $(RUN),-docs docs/compat-loops.md)

bench: build
	$(GO) run $(TAGS) ./test/bench -out docs/benchmarks.md
	$(GO) run $(TAGS) ./test/bench -suite trace -out docs/benchmarks.md

# What attacks cost the two HTTP/2 servers of proa; fails when the own one is less safe than that of net/http in a row. Takes six minutes.
bench-attacks: build
	$(GO) run $(TAGS) ./test/bench -suite attacks -out docs/benchmarks.md

generate:
	$(GO) generate ./server/...
