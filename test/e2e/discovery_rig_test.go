package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubeslot/kubeslot/test/cluster"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// discover makes a Configuration of a handler.
func (r *rig) discover(name, handler string, capacity int32, details string) {
	r.Helper()
	r.check(r.createConfiguration(name, akriv0.ConfigurationSpec{Capacity: capacity,
		DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: handler, DiscoveryDetails: details}}))
}

// plugIn adds a macvtap to the node, until unplug or the end of the test.
func (r *rig) plugIn(node, name string) cluster.Tap {
	r.Helper()
	tap, err := shared.AddMacvtap(node, name)
	if errors.Is(err, syscall.EOPNOTSUPP) {
		r.Skip(err) // it says how to get it
	}
	r.check(err)
	r.Cleanup(func() { _ = shared.RemoveMacvtap(node, name) })
	return tap
}

func (r *rig) unplug(node, name string) {
	r.Helper()
	r.check(shared.RemoveMacvtap(node, name))
}

// plugging is held while the network's machines change: each takes the next free number.
var plugging sync.Mutex

// machine puts a machine on the network, until the test ends.
func (r *rig) machine(name string) cluster.Machine {
	r.Helper()
	plugging.Lock()
	defer plugging.Unlock()
	m, err := shared.AddMachine(name)
	r.check(err)
	r.Cleanup(func() {
		plugging.Lock()
		defer plugging.Unlock()
		r.check(shared.RemoveMachine(name))
	})
	return m
}

// run starts a program in a node's namespaces or on a machine, until the test ends.
func (r *rig) run(p cluster.Program) {
	r.Helper()
	r.check(shared.Run(p))
	r.Cleanup(func() {
		if _, err := shared.PID(p.Name, p.On); r.Failed() && err != nil {
			r.Logf("%v; its output is in %s", err, shared.LogPath(p.Name, p.On))
		}
		_ = shared.RemoveProgram(p.Name, p.On) // it went with its machine
	})
}

// stop ends a program as an operator would, and waits until it has ended.
func (r *rig) stop(name, on string) {
	r.Helper()
	r.check(shared.Kill(name, on, syscall.SIGTERM))
	r.await(name+" on "+on+" to end", func() (bool, string) {
		_, err := shared.PID(name, on)
		return err != nil, "it runs"
	})
}

// handlerPrograms are the standalone discovery handlers and the simulated devices,
// built once, static as they are shipped.
var handlerPrograms = sync.OnceValues(func() (dir string, err error) {
	dir = filepath.Join(shared.BinDir(), "discovery")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return dir, buildStatic(dir, "./discovery/cmd/...", "./test/onvifcamera/...", "./test/simulated/...")
})

func (r *rig) program(name string) string {
	r.Helper()
	dir, err := handlerPrograms()
	r.check(err)
	return filepath.Join(dir, name)
}

// standalone runs a discovery handler as a process of its own on the node, which
// registers with the node's kubecri, until the test ends.
func (r *rig) standalone(node, handler string, args ...string) (program string) {
	r.Helper()
	i := slices.IndexFunc(shared.Nodes(), func(n cluster.Node) bool { return n.Name == node })
	program = handler + "-discovery"
	r.run(cluster.Program{Name: program, On: node, Argv: append([]string{r.program(program)}, args...),
		Env: []string{"DISCOVERY_HANDLERS_DIRECTORY=" + shared.Nodes()[i].HandlersDir, "DEBUG_ECHO_INSTANCES_SHARED=true"}})
	return program
}

// sightings are the times at which the API showed Instances of the test to come and go.
type sightings struct {
	*rig
	events watch.Interface
}

func (r *rig) watchInstances() *sightings {
	r.Helper()
	list, err := akri.AkriV0().Instances(r.ns).List(r.ctx, metav1.ListOptions{})
	r.check(err)
	events, err := akri.AkriV0().Instances(r.ns).Watch(r.ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	r.check(err)
	r.Cleanup(events.Stop)
	return &sightings{r, events}
}

// next waits for the next Instance that is added, or deleted.
func (s *sightings) next(kind watch.EventType) *akriv0.Instance {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	for {
		select {
		case e, ok := <-s.events.ResultChan():
			if !ok {
				s.Fatalf("the watch of Instances ended while it waited for %s", kind)
			}
			if in, isInstance := e.Object.(*akriv0.Instance); isInstance && e.Type == kind {
				return in
			}
		case <-ctx.Done():
			s.Fatalf("waited %v for an Instance to be %s", patience, kind)
		}
	}
}

// prompt checks that most of the times are within a second: a machine that runs other
// things too may be slow now and then.
func (r *rig) prompt(what string, took []time.Duration) {
	r.Helper()
	slices.Sort(took)
	r.Logf("%s: %v", what, took)
	if median := took[len(took)/2]; median > 10*time.Second { // all devices are read again each minute
		r.Errorf("%s: took %v, want about a second at most", what, median)
	}
}

// awaitInstance waits until the Configuration has one Instance that any node reaches,
// and that these nodes do.
func (r *rig) awaitInstance(configuration string, nodes ...string) akriv0.Instance {
	r.Helper()
	var in []akriv0.Instance
	r.await(fmt.Sprintf("%s to have one Instance, of %v", configuration, nodes), func() (bool, string) {
		in = slices.DeleteFunc(r.instances(configuration), func(i akriv0.Instance) bool { return len(i.Spec.Nodes) == 0 })
		return len(in) == 1 && slices.Equal(slices.Sorted(slices.Values(in[0].Spec.Nodes)), nodes), fmt.Sprint(in)
	})
	return in[0]
}

// awaitWithdrawn waits until no node reports a device of the Configuration, and its
// Instances are gone, but for those that have no nodes and that pods still use.
func (r *rig) awaitWithdrawn(configuration string) {
	r.Helper()
	r.await("the devices of "+configuration+" to be withdrawn", func() (bool, string) {
		in, devices := r.instances(configuration), r.devices(configuration)
		claims := r.claims(configuration)
		for _, i := range in {
			used := slices.ContainsFunc(slices.Collect(maps.Keys(claims)), func(slot string) bool { return strings.HasPrefix(slot, i.Name+"-") })
			if len(i.Spec.Nodes) > 0 || !used {
				return false, fmt.Sprint(in, devices)
			}
		}
		return len(devices) == 0, fmt.Sprint(in, devices)
	})
}
