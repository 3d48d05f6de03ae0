package scheduler

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	_ "k8s.io/component-base/logs/json/register"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
)

var (
	armNames   = flag.String("arms", "", "comma-separated arms to compare; all when empty")
	shapeNames = flag.String("shapes", "", "comma-separated shapes of cluster; all when empty")
	nodeCount  = flag.Int("nodes", 500, "nodes of the cluster; for each of them dense and shared have ten slots, two "+
		"ten of each kind, sparse five, full forty but at most 50,000")
	podCount    = flag.Int("pods", 1000, "pods measured in each run")
	profile     = flag.String("profile", "", "file for a CPU profile of what is measured; for a single arm and shape")
	signingKey  = flag.String("signing-key", "", "Ed25519 private key in PEM, of the arm signed")
	preQueueing = flag.Bool("pre-queueing", false, "enable SchedulerPreQueueingHints, which is alpha")
	batching    = flag.Bool("batching", false, "enable OpportunisticBatching, which scheduler_perf disables, without default topology constraints")
)

func TestMain(m *testing.M) {
	if err := perf.InitTests(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	requests.install()
	os.Exit(m.Run())
}

// BenchmarkPerfScheduling runs each arm on each shape once. What one run leaves
// in memory slows the next: bench.sh makes a process for each.
func BenchmarkPerfScheduling(b *testing.B) {
	for _, s := range shapes(*nodeCount, *podCount) {
		if !chosen(*shapeNames, s.name) {
			continue
		}
		for _, a := range arms {
			if !chosen(*armNames, a.name) || a.dra && s.twoKinds { // the claims of DRA's arms are for one kind
				continue
			}
			run{arm: a, shape: s}.bench(b)
		}
	}
}

func chosen(list, name string) bool {
	return list == "" || slices.Contains(strings.Split(list, ","), name)
}

// run is one arm on one shape.
type run struct {
	arm
	shape
}

func (r run) bench(b *testing.B) {
	m := &meter{want: r.pods, profile: *profile}
	r.install()
	perf.RunBenchmarkPerfScheduling(b, r.writeConfig(b), r.arm.name, r.registry(),
		perf.WithNodeUpdateFn(r.prepare(m)),
		perf.WithPrepareFn(r.finish(m)),
	)
}
