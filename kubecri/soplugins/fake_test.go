package soplugins

import (
	"context"
	"sync"

	"github.com/kubeslot/kubeslot/plugins/load"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/device"
)

// fake is a device plugin whose methods a test sets. It remembers its calls, and
// whether two ever overlapped.
type fake struct {
	name           string
	newFunc, start func() error
	update         func(*types.NodeInfo) error
	allocate       func(*types.PodInfo, *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error)
	mu             sync.Mutex
	calls          []string
	inside         int
	overlapped     bool
}

// set changes a method.
func set[F any](f *fake, method *F, to F) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*method = to
}

func get[F any](f *fake, method *F) F {
	f.mu.Lock()
	defer f.mu.Unlock()
	return *method
}

func (f *fake) enter(method string) func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, method)
	f.inside++
	f.overlapped = f.overlapped || f.inside > 1
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.inside--
	}
}

func (f *fake) count(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, call := range f.calls {
		if call == method {
			n++
		}
	}
	return n
}

func (f *fake) GetName() string { return f.name }

func (f *fake) New() error {
	defer f.enter(methodNew)()
	if do := get(f, &f.newFunc); do != nil {
		return do()
	}
	return nil
}

func (f *fake) Start() error {
	defer f.enter(methodStart)()
	if do := get(f, &f.start); do != nil {
		return do()
	}
	return nil
}

func (f *fake) UpdateNodeInfo(info *types.NodeInfo) error {
	defer f.enter(methodUpdateNodeInfo)()
	if do := get(f, &f.update); do != nil {
		return do(info)
	}
	return nil
}

func (f *fake) Allocate(pod *types.PodInfo, c *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
	defer f.enter(methodAllocate)()
	if do := get(f, &f.allocate); do != nil {
		return do(pod, c)
	}
	return nil, nil, nil, nil
}

// fakeRemote is a plugin that is a process of its own.
type fakeRemote struct {
	fake
	ignore bool
	// away is why it is not there, and own are its variables.
	away error
	own  map[string]string
	// asked is the pod and the container of the last AllocateContainer.
	asked string
}

func (r *fakeRemote) Away() error                     { return get(&r.fake, &r.away) }
func (r *fakeRemote) Required() bool                  { return !r.ignore }
func (r *fakeRemote) OwnVariables() map[string]string { return get(&r.fake, &r.own) }

func (r *fakeRemote) AllocateContainer(_ context.Context, pod *types.PodInfo, container string) (
	[]device.Mount, []string, map[string]string, error) {
	set(&r.fake, &r.asked, pod.Name+"/"+container)
	return r.Allocate(pod, pod.GetContainerInPod(container))
}

// says is an UpdateNodeInfo that says that the node has one of each.
func says(names ...types.ResourceName) func(*types.NodeInfo) error {
	return func(info *types.NodeInfo) error {
		for _, name := range names {
			info.Capacity[name], info.Allocatable[name] = 1, 1
		}
		return nil
	}
}

// gives is an Allocate that gives every container the variable.
func gives(name, value string) func(*types.PodInfo, *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
	return func(*types.PodInfo, *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
		return nil, nil, map[string]string{name: value}, nil
	}
}

func loaded(fakes ...*fake) []load.Plugin[device.Device] {
	var all []load.Plugin[device.Device]
	for _, f := range fakes {
		all = append(all, load.Plugin[device.Device]{Name: f.name, File: "/plugins/" + f.name + ".so", Value: f})
	}
	return all
}
