package scheduler

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
	"k8s.io/kubernetes/test/utils/client-go/ktesting"
)

// meter measures from the first measured pod's creation to the last one's
// binding, as the scheduler's own pod informer shows them.
type meter struct {
	want    int
	profile string // file for a CPU profile, if any

	mu         sync.Mutex
	bound      int
	begin, end reading
	// scheduling and events are the writes before the first pod of the run.
	scheduling, events int64
}

// reading is the time, and the CPU used so far by the API server, etcd and the
// scheduler with what the harness runs beside it: they share a process.
type reading struct {
	at  time.Time
	cpu time.Duration
}

func read() reading { return reading{at: time.Now(), cpu: cpuTime()} }

func (m *meter) start(pods cache.SharedInformer) error {
	m.scheduling, m.events = requests.scheduling.Load(), requests.events.Load()
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { m.observe(nil, obj.(*v1.Pod)) },
		UpdateFunc: func(old, obj any) { m.observe(old.(*v1.Pod), obj.(*v1.Pod)) },
	})
	return err
}

func (m *meter) observe(old, pod *v1.Pod) {
	if pod.Namespace != measureNamespace {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.begin.at.IsZero() {
		m.startProfile()
		m.begin = read()
	}
	if pod.Spec.NodeName != "" && (old == nil || old.Spec.NodeName == "") {
		if m.bound++; m.bound == m.want {
			m.end = read()
			pprof.StopCPUProfile()
		}
	}
}

func (m *meter) startProfile() {
	if m.profile == "" {
		return
	}
	file, err := os.Create(m.profile)
	if err == nil {
		err = pprof.StartCPUProfile(file)
	}
	if err != nil {
		panic(err)
	}
}

// finish returns the hook that, when the run is over and its cluster still up,
// reports what was measured and checks the invariants.
func (r run) finish(m *meter) perf.HookFn {
	return func(tCtx ktesting.TContext) error {
		tCtx.CleanupCtx(func(tCtx ktesting.TContext) {
			b := tCtx.TB().(*testing.B)
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.bound != m.want {
				tCtx.Errorf("%d of %d pods were bound", m.bound, m.want)
				return
			}
			b.ReportMetric(float64(m.want)/m.end.at.Sub(m.begin.at).Seconds(), "pods/s")
			b.ReportMetric(float64((m.end.cpu-m.begin.cpu).Microseconds())/1000/float64(m.want), "cpu-ms/pod")
			pods := float64(r.fill + r.pods)
			b.ReportMetric(float64(requests.scheduling.Load()-m.scheduling)/pods, "writes/pod")
			b.ReportMetric(float64(requests.events.Load()-m.events)/pods, "events/pod")
			b.ReportMetric(heapInUse(), "heap-MB")
			if err := r.check(tCtx); err != nil {
				tCtx.Errorf("after the run: %v", err)
			}
		})
		return nil
	}
}

// heapInUse is what is left after a collection, in MiB.
func heapInUse() float64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapInuse) / (1 << 20)
}

// cpuTime is the CPU used by this process and its children that live: etcd.
func cpuTime() time.Duration {
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		panic(err) // it has no reason to fail
	}
	sum := time.Duration(own.Utime.Nano() + own.Stime.Nano())
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, task := range tasks {
		children, _ := os.ReadFile(task)
		for _, pid := range strings.Fields(string(children)) {
			sum += cpuTimeOf(pid)
		}
	}
	return sum
}

// cpuTimeOf reads /proc/<pid>/stat, see proc(5): fields 14 and 15 are the user
// and system time in ticks, of which Linux shows 100 a second.
func cpuTimeOf(pid string) time.Duration {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0 // it has ended
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks int
	for _, field := range fields[11:13] {
		n, _ := strconv.Atoi(field)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
