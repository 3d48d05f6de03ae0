# Kubeslot. `make demo` shows it, `make test` tests it; both need Linux, root, Go
# and gcc, and fetch all else as Go modules.
.PHONY: help build plugins plugin-builder demo demo-down test lint test-unit test-e2e soak bench-scheduler bench-scheduler-process bench-scale bench-discovery bench-cri images push generate clean

KUBE_VERSION := v1.36.3
LDFLAGS := -X k8s.io/component-base/version.gitVersion=$(KUBE_VERSION) \
	-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36
UNIT := $(shell go list ./... 2>/dev/null | grep -v /test/e2e)

help: ## Show the targets.
	@sed -n 's/^\([a-z0-9-]*\):.*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 18

build: ## Build kube-scheduler, kubecri, controller, kubectl-kubeslot and the standalone discovery handlers into _output/.
	@hack/preflight.sh go gcc
	CGO_ENABLED=1 go build -trimpath -ldflags '$(LDFLAGS)' -o _output/ ./kube-scheduler/cmd/kube-scheduler ./kubecri/cmd/kubecri ./controller/cmd/controller
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o _output/ ./kubectl-kubeslot/cmd/kubectl-kubeslot ./discovery/cmd/...

plugins: build ## Build and check this tree's plugins, into _output/plugins/{schedulers,devices}/ (FAKE=1: with a fake GPU one, into _output/plugins/fake/).
	go run ./plugins/builder $(wildcard plugins/*/scheduler plugins/*/device)
	$(if $(FAKE),go run ./plugins/builder -o _output/plugins/fake/fakegpu.so test/fakegpu/device)

images: ## Build container images for amd64 and arm64 as OCI archives into _output/images/ (ONLY=kubecri,controller VERSION=v1).
	@hack/preflight.sh go
	go run ./deploy/images/cmd/images -ldflags '$(LDFLAGS)' $(if $(VERSION),-version=$(VERSION)) $(if $(ONLY),-only=$(ONLY)) $(if $(REGISTRY),-registry=$(REGISTRY))

push: ## Build the images and send them to REGISTRY=<host/folder>, with the credentials of docker login.
	@hack/preflight.sh go
	go run ./deploy/images/cmd/images -push -registry=$(or $(REGISTRY),$(error say where to: make push REGISTRY=registry.example/kubeslot)) -ldflags '$(LDFLAGS)' $(if $(VERSION),-version=$(VERSION)) $(if $(ONLY),-only=$(ONLY))

plugin-builder: ## Build and check a plugin, of any tree, for _output's binaries: PLUGIN=<folder> [OUT=<file.so>].
	@hack/preflight.sh go gcc
	@go run ./plugins/builder -o '$(OUT)' '$(PLUGIN)'

demo: ## Bring up a real cluster and show two cameras being shared (KEEP=1 leaves it up).
	@hack/preflight.sh root go gcc
	@go run ./test/demo

demo-down: ## Take down the cluster that a demo with KEEP=1 left.
	@hack/preflight.sh root go
	@go run ./test/cluster/cmd/cluster down --name demo

test: lint test-unit test-e2e ## All tests: lint, unit tests with the race detector, the real cluster.

lint: ## gofmt, go vet, and generated files up to date.
	@hack/preflight.sh go gcc
	@unformatted=$$(git ls-files -z '*.go' | xargs -0 gofmt -l); \
		[ -z "$$unformatted" ] || { echo "not gofmt-clean:"; echo "$$unformatted"; exit 1; }
	go vet ./...
	go -C kubedevice-api vet ./...
	go -C hack/tools run ./protocompile -check ../.. types/discovery/v0/discovery.proto
	@deploy/helm/copy.sh -check

test-unit: ## Unit tests with the race detector.
	@hack/preflight.sh go gcc
	go test -race -timeout 30m $(UNIT)
	go -C kubedevice-api test -race ./...

test-e2e: ## Tests on a real cluster of two nodes (KEEP=1 leaves it up).
	@hack/preflight.sh root go gcc
	KUBESLOT_E2E=1 go test -count=1 -p 1 -timeout 60m -v ./test/cluster ./test/e2e ./test/helm $(if $(RUN),-run '$(RUN)')

soak: ## Ten minutes on a real cluster with handlers and devices and nothing to do: nothing may be written (SOAK=10m).
	$(MAKE) test-e2e RUN=TestStandaloneHandlers SOAK=$(or $(SOAK),10m)

bench-scheduler: ## Pods/s against plain pods and DRA (COUNT, NODES, PODS, SHAPES, ARMS: test/perf/scheduler/bench.sh).
	@hack/preflight.sh go
	test/perf/scheduler/bench.sh

bench-scheduler-process: ## The scheduler's memory, CPU and pods/s against the stock one's, apart from the API server (ROUNDS=6, NODES=5000, PODS=10000, ARMS=plain,ours,dra).
	@hack/preflight.sh root go gcc
	go run ./test/perf/process -rounds=$(or $(ROUNDS),6) -nodes=$(or $(NODES),5000) -pods=$(or $(PODS),10000) -arms=$(or $(ARMS),plain,ours,dra) $(if $(PROFILES),-profiles=$(PROFILES))

bench-scale: ## What N nodes cost the API server: joins, claims, restarts, ten thousand devices on one node (NODES=50,200,500,1000).
	@hack/preflight.sh root go gcc
	go run ./test/perf/scale -nodes=$(or $(NODES),50,200,500,1000)

bench-discovery: ## Ten thousand devices on one node, and a device that is plugged in and out (DEVICES=10000 SAMPLES=200).
	@hack/preflight.sh root go gcc
	go run ./test/perf/discovery -devices=$(or $(DEVICES),10000) -samples=$(or $(SAMPLES),200)

bench-cri: ## CRI calls straight to containerd and through kubecri (ROUNDS=10 PODS=10).
	@hack/preflight.sh root go gcc
	go run ./test/perf/cri -rounds=$(or $(ROUNDS),10) -pods=$(or $(PODS),10)

generate: ## Deep copies, clients and CRDs from types, the discovery protocol, and the chart's copies.
	@hack/preflight.sh go
	hack/generate.sh

clean: ## Remove _output/.
	rm -rf _output
