# Everything a newcomer or CI runs. Each target does all of its own set-up.
GO      ?= go
TOOL     = $(GO) tool -modfile=tools/go.mod
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# Routes, pages and commands are many small functions that nobody waits for: without inlining they are 2 MB smaller.
OURS     = github.com/kici-go/kici/internal
SMALL    = $(foreach p,$(OURS)/api $(OURS)/web $(OURS)/app $(OURS)/cli/... github.com/spf13/... github.com/charmbracelet/...,-gcflags=$(p)=-l)
LDFLAGS  = -s -w -X github.com/kici-go/kici/internal/obs.Version=$(VERSION)

.PHONY: help build demo test test-short fuzz bench crash sim mutate forge lint generate fmt screenshots packages image man clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort | column -t -s '	'

build: ## bin/kici, one static binary
	CGO_ENABLED=0 $(GO) build -trimpath $(SMALL) -ldflags '$(LDFLAGS)' -o bin/kici ./cmd/kici
	@ln -sf kici bin/kici-admin

demo: build ## a server, an example repository, a push, a run, in this terminal
	bin/kici demo

test: ## everything, with the real PostgreSQL and browser where they can be had, and the race detector
	scripts/test.sh -race -shuffle=on -timeout 25m ./...

test-short: ## the same without the race detector and without the slow tests
	scripts/test.sh -short -shuffle=on ./...

fuzz: ## every fuzz target for FUZZTIME (10s)
	scripts/fuzz.sh $(or $(FUZZTIME),10s)

crash: ## the crash-point harness at length: kill -9 after every commit of a job's life, and at every call of a container's start
	KICI_TEST_CRASH_POINTS=all scripts/test.sh -run 'Crash|KilledAtEveryCall|CapWithRandomFailures' -timeout 60m ./internal/harness/...

sim: ## the simulation: SEEDS=n seeds from SEED=1, COORDINATORS=1 or 3 (both sets); a SEED alone is played once
	SEEDS="$(SEEDS)" SEED="$(SEED)" COORDINATORS="$(COORDINATORS)" scripts/sim.sh

mutate: ## break kici on purpose, one fault at a time, and let the simulation find each (ONLY=name,name)
	$(GO) run ./internal/harness/sim/mutate -only "$(ONLY)"

forge: ## the test with a real Gitea, which is built once and kept in the user's cache
	KICI_TEST_GITEA="$$(scripts/gitea.sh)" KICI_TEST_REQUIRE=gitea,git scripts/test.sh -run RealGitea -count=1 -timeout 30m ./internal/harness/

bench: build ## the rows of DESIGN §11 beside their goals and a yardstick of the same run
	$(GO) run ./internal/harness/bench -kici bin/kici

lint: ## gofumpt, golangci-lint, vulnerabilities
	scripts/lint.sh

generate: ## SQL and templates
	scripts/sqlc.sh
	$(TOOL) templ generate -path internal/web

fmt: ## format the tree
	$(TOOL) gofumpt -w $$(git ls-files '*.go' | grep -v -e '^internal/store/db/' -e '_templ.go$$')

screenshots: ## the pictures of docs/pictures, of a fixed set of data under a clock that stands still
	KICI_TEST_UPDATE_PICTURES=1 KICI_TEST_REQUIRE=chromium scripts/test.sh -run BrowserPictures -count=1 ./internal/harness/

packages: ## deb and rpm in bin/packages (ARCHS="amd64 arm64")
	scripts/packages.sh $(ARCHS)

image: build ## the container image kici:latest, FROM scratch
	mkdir -p bin/image && cp packaging/container/Dockerfile bin/image/
	packaging/container/rootfs.sh bin/kici bin/image/rootfs.tar
	docker build -t kici:latest bin/image

man: build ## man pages in bin/man1
	bin/kici docs man bin/man1

clean:
	rm -rf bin .cache
