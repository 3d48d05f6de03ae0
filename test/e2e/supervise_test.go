package e2e

import (
	"strings"
	"sync"
	"time"

	"github.com/kubeslot/kubeslot/test/cluster"
)

// supervisor starts whatever ends, but the API server and etcd, as systemd and kubelets do.
type supervisor struct {
	*rig
	mu      sync.Mutex
	down    map[string]bool // by component and node: what is to stay away
	stopped chan struct{}
	done    chan struct{}
}

// supervise begins; stop ends it.
func (r *rig) supervise() (stop func()) { return r.superviseBut("", "").stop }

// superviseBut leaves a component out, of a node or of none.
func (r *rig) superviseBut(component, node string) *supervisor {
	s := &supervisor{rig: r, down: map[string]bool{}, stopped: make(chan struct{}), done: make(chan struct{})}
	s.away(component, node, true)
	go func() {
		defer close(s.done)
		for {
			select {
			case <-s.stopped:
				s.start() // the next test needs all of them
				return
			case <-time.After(200 * time.Millisecond):
				s.start()
			}
		}
	}()
	return s
}

func (s *supervisor) stop() { close(s.stopped); <-s.done }

// away says whether a component is to stay away.
func (s *supervisor) away(component, node string, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down[component+" "+node] = is
}

func (s *supervisor) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for component, nodes := range map[string][]string{
		cluster.Scheduler: {""}, cluster.Controller: {""}, cluster.ControllerManager: {""},
		cluster.Kubecri: {nodeA, nodeB}, cluster.Kubelet: {nodeA, nodeB}, cluster.Containerd: {nodeA, nodeB},
	} {
		for _, node := range nodes {
			if s.down[component+" "+node] {
				continue
			}
			if _, err := shared.PID(component, node); err == nil {
				continue
			}
			s.Log(strings.TrimSpace(component+" "+node), "has ended, and is started")
			if err := shared.Start(component, node); err != nil {
				s.Error(err)
			}
		}
	}
}
