package binding

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubeslot/kubeslot/types"
)

// A Binding says of each container with devices, and of no other, that it needs the node's NRI plugin.
func TestRequiredPlugin(t *testing.T) {
	long := strings.Repeat("c", 60)
	const key = "required-plugins.noderesource.dev"
	with := func(names ...string) map[string]types.ContainerInfo {
		all := map[string]types.ContainerInfo{"plain": {Requests: types.ResourceList{"x": 1}}}
		for _, name := range names {
			all[name] = slots()["main"]
		}
		return all
	}
	for name, tc := range map[string]struct {
		plugin     string
		has        map[string]string // the pod
		init, main map[string]types.ContainerInfo
		want       map[string]string
	}{
		"no NRI":            {"", nil, nil, with("main"), map[string]string{}},
		"none with devices": {"kubecri", nil, nil, with(), map[string]string{}},
		"each with devices": {"kubecri", nil, gpus(), with("main"), map[string]string{key + "/container.main": `["kubecri"]`, key + "/container.warm": `["kubecri"]`}},
		"another name":      {"ours", nil, nil, with("main"), map[string]string{key + "/container.main": `["ours"]`}},
		"a pod's own":       {"kubecri", map[string]string{key: "[other]", "x": "y"}, nil, with("main"), map[string]string{key + "/container.main": `["other","kubecri"]`}},
		"a container's own": {"kubecri", map[string]string{key: "[other]", key + "/container.main": "[mine]"}, nil, with("main"), map[string]string{key + "/container.main": `["mine","kubecri"]`}},
		"there already":     {"kubecri", map[string]string{key + "/pod": `["kubecri"]`}, nil, with("main"), map[string]string{key + "/container.main": `["kubecri"]`}},
		"malformed":         {"kubecri", map[string]string{key: "{"}, nil, with("main"), map[string]string{key + "/container.main": `["kubecri"]`}},
		// The runtime's YAML reads it.
		"of version 1.2": {"kubecri", map[string]string{key: "%YAML 1.2\n---\n[other]"}, nil, with("main"), map[string]string{key + "/container.main": `["kubecri"]`}},
		"a long name":    {"kubecri", map[string]string{key: "[other]"}, nil, with(long, long+"d"), map[string]string{key + "/pod": `["other","kubecri"]`}},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: maps.Clone(tc.has)}}
			main := tc.main
			if tc.init != nil {
				main = map[string]types.ContainerInfo{"main": tc.init["main"]}
				delete(tc.init, "main")
			}
			requirePlugin(got, pod, &types.PodInfo{InitContainers: tc.init, RunningContainers: main}, tc.plugin)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.has, pod.Annotations); diff != "" {
				t.Errorf("the pod was changed (-want +got):\n%s", diff)
			}
		})
	}
}

// What a pod's author requires is read once, however many containers have devices.
func TestRequiredPluginsAreReadOnce(t *testing.T) {
	text := "" // no list
	for i := range 1000 {
		text += fmt.Sprintf("k%d: [x]\n", i)
	}
	pod := newPod("")
	pod.Annotations = map[string]string{"required-plugins.noderesource.dev": text}
	read := func(containers int) float64 {
		info := &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{}}
		for i := range containers {
			info.RunningContainers[fmt.Sprint("c", i)] = slots()["main"]
		}
		return testing.AllocsPerRun(1, func() { requirePlugin(map[string]string{}, pod, info, "kubecri") })
	}
	if one, many := read(1), read(100); many > 2*one {
		t.Errorf("%v allocations for 100 containers, %v for one", many, one)
	}
}

// The node says the plugin's name.
func TestRequiredPluginIsTheNodes(t *testing.T) {
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for name, annotations := range map[string]map[string]string{"a": {"kubeslot.io/nri-plugin": "kubecri"}, "b": nil} {
		if err := nodes.Add(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}); err != nil {
			t.Fatal(err)
		}
	}
	pluginOf := NRIPluginOf(corelisters.NewNodeLister(nodes))
	if a, b, c := pluginOf("a"), pluginOf("b"), pluginOf("c"); a != "kubecri" || b != "" || c != "" {
		t.Errorf("plugins %q, %q, %q", a, b, c)
	}
	client, pod, state := answering(nil), newPod(""), framework.NewCycleState()
	bind := binder(client, nil)
	bind.NRIPlugin = pluginOf
	if err := bind.Contribute(state, pod, "a", "Slots", slots(), nil); err != nil {
		t.Fatal(err)
	}
	if status := bind.Bind(t.Context(), state, pod, "a"); !status.IsSuccess() {
		t.Fatal(status)
	}
	sent := client.Actions()[0].(clienttesting.CreateAction).GetObject().(*v1.Binding)
	if len(client.Actions()) != 1 || sent.Annotations["required-plugins.noderesource.dev/container.main"] != `["kubecri"]` {
		t.Errorf("%d calls, annotations %v", len(client.Actions()), sent.Annotations)
	}
}

// What a pod's author requires is written again for each container with devices. A pod whose annotations
// would become larger than the API server allows is refused at Reserve, for a node with NRI.
func TestRequiredPluginsTooLarge(t *testing.T) {
	pod, bind := newPod(""), binder(answering(nil), nil)
	bind.NRIPlugin = func(node string) string { return map[string]string{"a": "kubecri"}[node] }
	pod.Annotations = map[string]string{"required-plugins.noderesource.dev": `["` + strings.Repeat("x", 100<<10) + `"]`}
	if err := bind.Contribute(framework.NewCycleState(), pod, "a", "Devices", gpus(), nil); err == nil || !strings.Contains(err.Error(), "262144 allowed") {
		t.Errorf("with the list for three: %v", err)
	}
	if err := bind.Contribute(framework.NewCycleState(), pod, "a", "Slots", slots(), nil); err != nil {
		t.Errorf("with the list for two: %v", err)
	}
	if err := bind.Contribute(framework.NewCycleState(), pod, "b", "Devices", gpus(), nil); err != nil {
		t.Errorf("without NRI: %v", err)
	}
}
