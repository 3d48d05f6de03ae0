# Kubeslot. `make demo` shows it, `make test` tests it; both need Linux, root, Go
# and gcc, and fetch all else as Go modules.

# Every build has these flags, so that each package is compiled once, whether a program uses cgo or not, and
# wherever the tree is. With GOGC=400 compiling takes a sixth less CPU time, and on few cores, which other packages
# keep busy, GOMAXPROCS=1 saves a further fifteenth. GOFLAGS of the user come after them.
GOFLAGS_OF_ALL = -trimpath -buildvcs=false '-gcflags=all=$(COMPILER)' -tags=netgo,osusergo $(TOOLEXEC)
TOOLEXEC := '-toolexec=env GOGC=400 $(if $(filter 1 2 3 4,$(shell nproc)),GOMAXPROCS=1)'
# Demos and tests run what is compiled in a quarter less time: nothing is inlined, and no bound is proved.
COMPILER := -dwarf=false -l -d=ssa/prove/off
THEIR_GOFLAGS := $(filter-out $(GOFLAGS_OF_ALL),$(GOFLAGS))
override export GOFLAGS = $(strip $(GOFLAGS_OF_ALL) $(THEIR_GOFLAGS))
# What is published, installed or measured is optimized.
build plugins images push pictures krew release test-release test-gpu bench-%: COMPILER := -dwarf=false

.PHONY: help build plugins plugin-builder demo demo-helm demo-load demo-down test test-all test-changed test-times lint test-unit fuzz test-e2e test-bench test-skew test-histories test-gpu soak soak-idle bench-scheduler bench-scheduler-process bench-plugins bench-scale bench-discovery bench-brokers bench-device-plugin test-device-plugin-long bench-cri images push pictures krew release release-version test-release generate site clean

KUBE_VERSION := $(shell sed -n 's|.*k8s.io/kubernetes \(v[0-9.]*\)$$|\1|p' go.mod)
LDFLAGS := -X k8s.io/component-base/version.gitVersion=$(KUBE_VERSION) \
	-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$(word 2,$(subst ., ,$(KUBE_VERSION))) \
	$(if $(VERSION),-X github.com/kubeslot/kubeslot/version.version=$(VERSION))
# Packages of tests that bring up clusters, two at a time. Their suites are in suites.txt, as are those of all tests.
E2E := $(shell sed -n 's/^clusters  *//p' test/suites/suites.txt)
# Fuzzers of `make fuzz`, as package:fuzzer. They run by the number of inputs: one with a
# time may fail at its end for no reason (go.dev/issue/75804, until Go 1.27). Inputs that
# break one are written to the package's testdata/fuzz; commit them with the fix.
FUZZERS := ./types/assignment:FuzzAnnotation ./kubecri/inject:FuzzCRIMergesIntoTheRequest ./kubecri/checkpoint:FuzzDecode \
	./kubecri/cdi:FuzzDescribe ./kubecri/soplugins/nodeinfo:FuzzNodeInfo \
	./plugins/nvidiagpu/config:FuzzParse
# The demo's cluster. NAME is taken from the command line alone: WSL has a variable NAME in its environment.
DEMO = $(if $(filter command,$(origin NAME)),$(NAME),demo)
# What a target says that builds Kubernetes.
FIRST = @[ -e _output/cluster/kubernetes ] || echo "Kubernetes, etcd, containerd, runc and Kubeslot are built from source, once: 6 to 12 minutes on two cores, 6 GB (10 until the build ends)"
UNIT = $(filter-out $(OTHERS:./%=github.com/kubeslot/kubeslot/%),$(shell go list ./... ./types/... 2>/dev/null))
OTHERS = $(shell sed -En 's/^(clusters|packages) +//p' test/suites/suites.txt)
# make test and make test-all set JSON, for the tables of times, and SHORT.
GOTESTFLAGS = $(if $(JSON),-json) $(if $(SHORT),-short)
# Many tests wait for sockets and processes: eight at a time. `make lint` vets.
UNITTEST = go test -vet=off -parallel 8 -timeout 30m $(GOTESTFLAGS)

help: ## Show the targets.
	@sed -n 's/^\([a-z0-9-]*\):.*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 18

build: ## Build kube-scheduler, kubecri, controller, kubectl-kubeslot, kubeslot-ui, kubeslot-plugin-test and the standalone discovery handlers into _output/.
	@hack/preflight.sh go gcc
	CGO_ENABLED=1 go build -trimpath -ldflags '$(LDFLAGS)' -o _output/ ./kube-scheduler/cmd/kube-scheduler ./kubecri/cmd/kubecri ./controller/cmd/controller
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w $(LDFLAGS)' -o _output/ ./kubectl-kubeslot/cmd/... ./discovery/cmd/... ./plugins/conformance/cmd/...

plugins: build ## Build and check this tree's plugins, into _output/plugins/{schedulers,devices}/ (FAKE=1: with a fake GPU one, into _output/plugins/fake/).
	go run ./plugins/builder $(wildcard plugins/*/scheduler plugins/*/device)
	$(if $(FAKE),go run ./plugins/builder -o _output/plugins/fake/fakegpu.so test/fakegpu/device)

images: ## Build container images for amd64 and arm64 as OCI archives into _output/images/, with a list of them, images.txt (ONLY=kubecri,controller VERSION=v1; PLUGINS=1: those that load .so files too).
	@hack/preflight.sh go
	go run ./deploy/images/cmd/images -ldflags '$(LDFLAGS)' $(if $(VERSION),-version=$(VERSION)) $(if $(ONLY),-only=$(ONLY)) $(if $(REGISTRY),-registry=$(REGISTRY)) $(if $(PLUGINS),-plugins)

push: ## Build the images and send them to REGISTRY=<host/path>, which is asked first, with the credentials of docker login.
	@hack/preflight.sh go
	go run ./deploy/images/cmd/images -push -registry=$(or $(REGISTRY),$(error say where to: make push REGISTRY=registry.example/kubeslot)) -ldflags '$(LDFLAGS)' $(if $(VERSION),-version=$(VERSION)) $(if $(ONLY),-only=$(ONLY)) $(if $(PLUGINS),-plugins)

pictures: ## The pictures of docs/ui.md, taken of a real cluster (needs Chromium).
	@hack/preflight.sh root go gcc
	kubectl-kubeslot/ui/pictures/take.sh

krew: ## Pack kubectl-kubeslot for krew into _output/krew/ (VERSION=v1 URL=https://…).
	@hack/preflight.sh go
	go run ./deploy/krew/cmd/krew $(if $(VERSION),-version=$(VERSION)) $(if $(URL),-url=$(URL))

# The Go that go.mod names makes a release, whatever is installed.
RELEASE = GOTOOLCHAIN=go$(shell sed -n 's/^go //p' go.mod) go run ./deploy/release/cmd/release -version=$(or $(VERSION),$(error say which: make $@ VERSION=v0.2.0))

release: ## Make a release into _output/release/<VERSION>, see docs/release.md (VERSION=v1.2.3 KEY=<file> REGISTRY=<host/path> PUSH=0: name the registry and do not push).
	@hack/preflight.sh go
	$(RELEASE) -ldflags '$(LDFLAGS)' $(if $(REGISTRY),-registry=$(REGISTRY)) $(if $(filter 0,$(PUSH)),-push=false) $(if $(KEY),-key='$(KEY)') $(if $(BUILDER),-builder='$(BUILDER)') $(if $(ARCH),-arch=$(ARCH))

release-version: ## Have the chart, go.mod and the pages say VERSION=v1.2.3.
	@hack/preflight.sh go
	$(RELEASE) -set

plugin-builder: ## Build and check a plugin, of any tree, for _output's binaries: PLUGIN=<directory> [OUT=<file.so>].
	@hack/preflight.sh go gcc
	@go run ./plugins/builder -o '$(OUT)' '$(PLUGIN)'

demo: ## Bring up a real cluster and show two cameras being shared (KEEP=1 leaves it up; NAME=other; MODE=device-plugin: without our scheduler).
	@hack/preflight.sh root go gcc disk:4 memory:3 cluster:$(DEMO)
	$(FIRST)
	@go run ./test/cluster/cmd/build demo && exec _output/cluster/demo -name=$(DEMO)

demo-helm: ## The same on a stock cluster, with Kubeslot from its Helm chart (KEEP=1 leaves it up; NAME=other).
	@hack/preflight.sh root go gcc disk:5 memory:3 cluster:$(DEMO)
	$(FIRST)
	@go run ./test/cluster/cmd/build demo-helm && exec _output/cluster/demo -helm -name=$(DEMO)

demo-load: ## Build plugins and have the cluster that a demo with KEEP=1 left load them: PLUGIN="<directory> <directory>" (NAME=other).
	@hack/preflight.sh root go gcc
	@go run ./test/cluster/cmd/cluster load --name $(DEMO) $(PLUGIN)

demo-down: ## Take down the cluster that a demo with KEEP=1 left (NAME=other).
	@hack/preflight.sh root go
	@go run ./test/cluster/cmd/cluster down --name $(DEMO)

test: ## Does it work? Lint, unit tests and one real cluster, in 12 to 21 minutes (docs/testing.md says what is in it).
	@hack/preflight.sh root go gcc disk:8 memory:3
	+@go run ./test/suites test

test-all: ## All tests, in hours: make test's in full, fuzzers, and what takes long (SUITES="chart krew"; SKEW=1, SOAK=1, HISTORIES=1: those too).
	@hack/preflight.sh root go gcc disk:8 memory:3
	+@go run ./test/suites test-all

test-changed: ## What CI runs: make test, then suites of test-all whose code was changed since a day before the last commit (BASE=<commit> MINUTES=75).
	@hack/preflight.sh root go gcc disk:8 memory:3
	+@go run ./test/suites test-changed

test-times: ## The ten tests that took longest.
	@hack/preflight.sh go
	@go run ./test/suites longest

lint: ## gofmt, the checks of go vet and staticcheck, and generated files up to date.
	@hack/preflight.sh go gcc
	@hack/lint.sh

test-unit: ## Unit tests, with the race detector where goroutines meet (SHORT=1: without those that take long).
	@hack/preflight.sh go gcc
	@race="$$(SHORT=$(SHORT) hack/race-packages.sh)" || exit 1; \
	others="$$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' $(UNIT) | grep -vxF "$$race")" || exit 1; \
	failed=0; \
	$(UNITTEST) -race $$race || failed=1; \
	$(UNITTEST) $$others || failed=1; \
	GOWORK=off go -C kubedevice-api test -vet=off $(GOTESTFLAGS) ./... || failed=1; \
	GOWORK=off go -C hack/tools test -vet=off $(GOTESTFLAGS) ./... || failed=1; \
	$(if $(SHORT),,go test -vet=off $(if $(JSON),-json) -run '^$$' -bench '^Benchmark(FiveThousandDevices|TwentySessions)$$' -benchtime 1x ./kubectl-kubeslot/ui || failed=1;) \
	exit $$failed

fuzz: ## Fuzz what reads others' input (FUZZTIME=20000x: inputs for each fuzzer, FUZZERS=./package:FuzzName).
	@hack/preflight.sh go gcc
	@for f in $(FUZZERS); do echo "$$f"; go test $(GOTESTFLAGS) -run '^$$' -fuzz "^$${f#*:}$$" -fuzztime $(or $(FUZZTIME),20000x) -parallel 2 "$${f%:*}" || exit 1; done

test-e2e: ## Tests on real clusters (RUN='^TestChaos$$' E2E=./test/e2e: some; SHORT=1; NORACE=1 builds faster; KEEP=1 leaves it up, REUSE=1 takes the one that is; CLUSTER=name).
	@hack/preflight.sh root go gcc disk:5 memory:3
	@go run ./test/cluster/cmd/build cluster
	KUBESLOT_E2E=1 go test -count=1 $(GOTESTFLAGS) -p $(or $(P),2) -parallel 5 -timeout 100m -v $(E2E) $(if $(RUN),-run '$(RUN)')

test-bench: ## The checks in the scheduler's benchmark, which is a module of its own.
	@hack/preflight.sh go
	GOWORK=off go -C test/perf/scheduler tool -n benchstat >/dev/null
	GOWORK=off go -C test/perf/scheduler test $(GOTESTFLAGS) ./...

test-skew: ## Kubelets and API servers of other Kubernetes versions, and older containerds, which it builds, once: some ten minutes a Kubernetes (KUBELETS=1.34,1.37 API_SERVERS=1.36 CONTAINERDS=2.0: those alone).
	@hack/preflight.sh root go gcc
	KUBESLOT_SKEW=1 KUBELETS=$(KUBELETS) API_SERVERS=$(API_SERVERS) CONTAINERDS=$(CONTAINERDS) go test -count=1 $(GOTESTFLAGS) -timeout 3h -v ./test/skew $(if $(RUN),-run '$(RUN)')

test-gpu: ## Build _output/test-gpu, which checks the NVIDIA GPU plugin on any machine with the driver, and run it if this is one.
	@hack/preflight.sh go gcc
	CGO_ENABLED=1 go build -ldflags '-s -w' -o _output/test-gpu ./test/gpu
	@if [ -e /proc/driver/nvidia/version ] || [ -e /dev/nvidiactl ]; then _output/test-gpu; \
	else echo "This machine has no NVIDIA driver: copy _output/test-gpu to one that has, and run it there as root."; fi

test-release: ## A whole release, made twice, and checked as docs/release.md says (builds Helm and cosign).
	@hack/preflight.sh go gcc disk:8
	KUBESLOT_RELEASE=1 go test -count=1 $(GOTESTFLAGS) -timeout 3h -v ./test/release $(if $(RUN),-run '$(RUN)')

test-histories: ## Random histories of the ledger, and of pods that wait: more than in `make test`, an hour (HISTORIES=4000 RUNS=400).
	@hack/preflight.sh go gcc
	go test -count=1 $(GOTESTFLAGS) -timeout 3h -run '^TestHistories$$' ./device-scheduler/ledger -rapid.checks=$(or $(HISTORIES),4000)
	go test -count=$(or $(RUNS),400) $(GOTESTFLAGS) -timeout 3h -run '^TestNoPodWaitsThatCouldRun$$' ./kube-scheduler/configurationresources

soak: ## Ten minutes of chaos on a real cluster: pods come and go while everything is killed, frozen, cut off and restored (CHAOS=10m SEED=<number>).
	$(MAKE) test-e2e E2E=./test/e2e RUN='^(TestChaos|TestSoak)$$$$' CHAOS=$(or $(CHAOS),10m) SEED=$(or $(SEED),$(shell date +%s))

soak-idle: ## Ten minutes on a real cluster with handlers and devices and nothing to do: nothing may be written (SOAK=10m).
	$(MAKE) test-e2e E2E=./test/e2e RUN=TestStandaloneHandlers SOAK=$(or $(SOAK),10m)

bench-scheduler: ## Pods/s against plain pods and DRA (COUNT, NODES, PODS, SHAPES, ARMS: test/perf/scheduler/bench.sh).
	@hack/preflight.sh go
	test/perf/scheduler/bench.sh

bench-scheduler-process: ## The scheduler's memory, CPU and pods/s against the stock one's, apart from the API server (ROUNDS=6, NODES=5000, PODS=10000, ARMS=plain,ours,dra).
	@hack/preflight.sh root go gcc
	go run ./test/perf/process -rounds=$(or $(ROUNDS),6) -nodes=$(or $(NODES),5000) -pods=$(or $(PODS),10000) -arms=$(or $(ARMS),plain,ours,dra) $(if $(PROFILES),-profiles=$(PROFILES))

bench-plugins: ## Pods/s, and a container's creation, with the example plugin as a .so file and as a gRPC server (NODES='500 5000' ROUNDS=4).
	@hack/preflight.sh root go gcc
	for n in $(or $(NODES),500 5000); do go run ./test/perf/process -arms=so,grpc -nodes=$$n -pods=200 -further=1000 -rounds=$(or $(ROUNDS),4) || exit 1; done
	go run ./test/perf/cri -run='plugin$$' -pods=0 -rounds=10

bench-scale: ## What N nodes cost the API server: joins, claims, restarts, ten thousand devices on one node (NODES=50,200,500,1000).
	@hack/preflight.sh root go gcc
	go run ./test/perf/scale -nodes=$(or $(NODES),50,200,500,1000)

bench-discovery: ## Ten thousand devices on one node, and a device that is plugged in and out (DEVICES=10000 SAMPLES=200), or a flood of changes (FLOOD=1).
	@hack/preflight.sh root go gcc
	go run ./test/perf/discovery -devices=$(or $(DEVICES),10000) -samples=$(or $(SAMPLES),200) $(if $(FLOOD),-flood)

bench-brokers: ## Brokers of 1,000 Instances or more: time, API writes, CPU and memory of the controller, and how they grow (INSTANCES=1000,10000 NODES=20 ARMS=local,shared).
	@hack/preflight.sh root go gcc
	go run ./test/perf/brokers -instances=$(or $(INSTANCES),1000) -nodes=$(or $(NODES),20) -arms=$(or $(ARMS),local,shared) $(if $(ROLLOUTS),-rollouts=$(ROLLOUTS))

bench-device-plugin: ## 200 pods race for 50 slots on two nodes: device-plugin mode against our scheduler (ARMS; INSTANCES=2000: one node with so many instead).
	@hack/preflight.sh root go gcc
	go run ./test/perf/race $(if $(ARMS),-arms=$(ARMS)) $(if $(INSTANCES),-instances=$(INSTANCES))

test-device-plugin-long: ## Device-plugin mode: kubecri is away for longer than the kubelet remembers it, and the chart from install to uninstall (twenty minutes).
	@hack/preflight.sh root go gcc
	KUBESLOT_E2E=1 LONG=1 go test -count=1 $(GOTESTFLAGS) -v -timeout 20m -run TestKubecriAwayForLong ./test/deviceplugin
	KUBESLOT_E2E=1 LONG=1 go test -count=1 $(GOTESTFLAGS) -v -timeout 40m -run TestDevicePluginMode ./test/helm

bench-cri: ## CRI calls straight to containerd and through kubecri (ROUNDS=10 PODS=10).
	@hack/preflight.sh root go gcc
	go run ./test/perf/cri -rounds=$(or $(ROUNDS),10) -pods=$(or $(PODS),10)

generate: ## Deep copies, clients and CRDs from types, the discovery protocol, the chart's copies, and docs/reference.
	@hack/preflight.sh go
	hack/generate.sh

site: ## A static site of docs/ and examples/, into _output/site/<version>/ (VERSION=v1; otherwise main).
	@hack/preflight.sh go
	go run ./hack/site $(if $(VERSION),-version=$(VERSION))

clean: ## Remove _output/.
	rm -rf _output
