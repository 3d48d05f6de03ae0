package command

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/source"
	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
	kubedevice "github.com/kubeslot/kubeslot/types"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// The cluster that requests are counted of. Half of its nodes have a camera of two slots. On all but the last
// 500 of them two pods hold these.
const (
	largePods, largeNodes = 50_000, 5000
	perNode               = largePods / largeNodes
	cameras               = largeNodes / 2
	largeNamespaces       = 50
)

// The requests and bytes of commands at 50,000 pods. Times are those of this test's server, too: see
// docs/performance.md.
func TestRequestsAtSize(t *testing.T) {
	if testing.Short() {
		t.Skip("lists 50,000 pods: make test-all")
	}
	t.Setenv("KUBECONFIG", "/nonexistent")
	server := newAPIServer(t, largeCluster(t))
	const kB, MB = 1000, 1000 * 1000
	for _, tc := range []struct {
		line            string
		requests, bytes int64
		shown           string
	}{
		{"__complete list c", 1, 1 * kB, "cam"},
		{"__complete slots cam-", 3, 1 * MB, "cam-"},
		{"__complete pod -n team-11 pod-11", 1, 4 * MB, "pod-11"},
		{"__complete node node-17", 3, 15 * MB, "node-17"},
		{"__complete release cam-", 3, 2 * MB, "cam-"},
		{"__complete list -n team-11", 1, 10 * kB, "team-11"},
		{"list", 75, 160 * MB, "cam"},
		{"slots", 90, 210 * MB, "Assigned"},
		{"node node-17", 90, 210 * MB, "akri.sh/cam"},
		{"pod pod-11 -n team-11", 40, 70 * MB, "Running"},
		{"pod -n team-11", 90, 210 * MB, "Running"},
		{"pod waits-0 -n team-0", 140, 300 * MB, "SlotsHeld"},
	} {
		server.requests.Store(0)
		server.bytes.Store(0)
		streams, _, out, errOut := genericiooptions.NewTestIOStreams()
		o := newOptions(streams)
		o.completeTime = time.Minute
		root := newRoot(o)
		root.SetArgs(append([]string{"--server", server.URL}, strings.Fields(tc.line)...))
		began := time.Now()
		ran, err := root.ExecuteContextC(t.Context())
		t.Logf("%-32s %4d requests, %8.3f MB, %v", tc.line, server.requests.Load(), float64(server.bytes.Load())/MB,
			time.Since(began).Round(time.Millisecond))
		if code := o.exitCode(t.Context(), ran.Name(), err); code != 0 || !strings.Contains(out.String(), tc.shown) {
			t.Errorf("%s: it exits with %d, and does not show %q:\n%.500s\n%s", tc.line, code, tc.shown, out, errOut)
		}
		if n, size := server.requests.Load(), server.bytes.Load(); n > tc.requests || size > tc.bytes {
			t.Errorf("%s: %d requests and %d bytes, want at most %d and %d", tc.line, n, size, tc.requests, tc.bytes)
		}
	}
}

// What is not read would not change what is shown.
func TestReadsAgreeAtSize(t *testing.T) {
	if testing.Short() {
		t.Skip("lists 50,000 pods: make test-all")
	}
	server := newAPIServer(t, largeCluster(t))
	from, err := source.New(&rest.Config{Host: server.URL}, "default")
	if err != nil {
		t.Fatal(err)
	}
	views := map[bool]*view.View{}
	for _, all := range []bool{true, false} {
		objects, _, err := from.List(t.Context(), source.Wanted{AllPods: all, Of: "team-11"})
		if err != nil {
			t.Fatal(err)
		}
		if all != (len(objects.Pods) > largePods) {
			t.Errorf("of all pods: %v, and %d pods were read", all, len(objects.Pods))
		}
		views[all] = view.New(objects)
	}
	of := func(v *view.View) []view.Pod {
		return slices.DeleteFunc(v.Pods(), func(p view.Pod) bool { return p.Namespace != "team-11" })
	}
	for what, diff := range map[string]string{
		"slots":          cmp.Diff(views[true].Slots(), views[false].Slots()),
		"Configurations": cmp.Diff(views[true].Configurations(), views[false].Configurations()),
		"Instances":      cmp.Diff(views[true].Instances(), views[false].Instances()),
		"pods":           cmp.Diff(of(views[true]), of(views[false])),
	} {
		if diff != "" {
			t.Errorf("%s (-of all pods +of those that are needed):\n%.3000s", what, diff)
		}
	}
}

func largeCluster(t testing.TB) map[string]collection {
	began := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	nodes := make([]corev1.Node, largeNodes)
	pods := make([]corev1.Pod, 0, largePods)
	var instances []akriv0.Instance
	var reports []v1alpha1.DeviceSlice
	var claims []v1alpha1.SlotClaim
	namespaces := make([]corev1.Namespace, largeNamespaces)
	for i := range namespaces {
		namespaces[i].Name = fmt.Sprintf("team-%d", i)
	}
	for i := range nodes {
		nodes[i] = largeNode(i, began)
		node := nodes[i].Name
		for range perNode {
			pods = append(pods, largePod(len(pods), node, began))
		}
		if i >= cameras {
			continue
		}
		device := v1alpha1.Device{Configuration: v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"},
			ID: "/dev/video-" + node}
		device.Hash = slot.InstanceHash(device.ID, false, node, 6)
		instance := device.Instance()
		instances = append(instances, akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
			Name: instance, UID: types.UID("uid-" + instance), CreationTimestamp: began},
			Spec: akriv0.InstanceSpec{ConfigurationName: "cam", Capacity: 2, Nodes: []string{node}}})
		reports = append(reports, v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-0",
			CreationTimestamp: began},
			Spec: v1alpha1.DeviceSliceSpec{NodeName: node, Devices: []v1alpha1.Device{device}}})
		for index := range 2 {
			pod, of := &pods[len(pods)-perNode+index], slot.Name{Instance: instance, Index: index}
			assigned(t, pod, of)
			switch {
			case i >= cameras-500: // just assigned
				pod.Status.Phase, pod.Status.ContainerStatuses = corev1.PodPending, nil
				pod.Annotations[assignment.HolderAnnotation] = string(pod.UID)
			case i >= cameras-510: // started again: without a claim meanwhile
			default:
				claims = append(claims, *v1alpha1.NewSlotClaim(of,
					v1alpha1.SlotClaimSpec{NodeName: node, Container: "main", Level: v1alpha1.ConfigurationLevel,
						Holder: string(pod.UID), Pod: &v1alpha1.PodReference{Namespace: pod.Namespace, Name: pod.Name,
							UID: pod.UID}}, metav1.OwnerReference{}))
			}
		}
	}
	for i := range 20 {
		pod := largePod(i*largeNamespaces, "", began)
		pod.Name, pod.UID, pod.Status = fmt.Sprintf("waits-%d", i), types.UID(fmt.Sprintf("waits-%d", i)),
			corev1.PodStatus{Phase: corev1.PodPending}
		pod.Spec.Containers = []corev1.Container{asking(pod.Spec.Containers[0])}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: "Unschedulable", Message: "0/5000 nodes are available"}}
		pods = append(pods, pod)
	}
	cam := akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam", UID: "cam",
		CreationTimestamp: began},
		Spec: akriv0.ConfigurationSpec{Capacity: 2, DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: "udev"}}}
	return map[string]collection{
		"/pods":       {"v1", "Pod", &corev1.PodList{}, objects(pods)},
		"/nodes":      {"v1", "Node", &corev1.NodeList{}, objects(nodes)},
		"/namespaces": {"v1", "Namespace", &corev1.NamespaceList{}, objects(namespaces)},
		"/events":     {"v1", "Event", &corev1.EventList{}, nil},
		"akri.sh/configurations": {"akri.sh/v0", "Configuration", &akriv0.ConfigurationList{},
			objects([]akriv0.Configuration{cam})},
		"akri.sh/instances": {"akri.sh/v0", "Instance", &akriv0.InstanceList{}, objects(instances)},
		"kubeslot.io/deviceslices": {"kubeslot.io/v1alpha1", "DeviceSlice", &v1alpha1.DeviceSliceList{},
			objects(reports)},
		"kubeslot.io/slotclaims": {"kubeslot.io/v1alpha1", "SlotClaim", &v1alpha1.SlotClaimList{}, objects(claims)},
	}
}

func largeNode(i int, began metav1.Time) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i),
		UID: types.UID(fmt.Sprintf("node-%d", i)), CreationTimestamp: began,
		Labels: map[string]string{
			"kubernetes.io/os": "linux", "kubernetes.io/hostname": fmt.Sprintf("node-%d", i)},
		ManagedFields: managed}}
	n.Status = corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady,
		Status: corev1.ConditionTrue}},
		Allocatable: corev1.ResourceList{"cpu": resource.MustParse("16"), "memory": resource.MustParse("64Gi"),
			"pods": resource.MustParse("110"), "akri.sh/cam": resource.MustParse("2")}}
	for image := range 50 { // as many as a kubelet reports
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{SizeBytes: 1 << 28, Names: []string{
			fmt.Sprintf("registry.example/team/application-%d@sha256:%064d", image, image),
			fmt.Sprintf("registry.example/team/application-%d:v1.2.3", image)}})
	}
	return n
}

// managed are managed fields of the size that those of a Deployment's pod have.
var managed = []metav1.ManagedFieldsEntry{
	{Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1",
		FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1("{" + strings.TrimSuffix(strings.Repeat(
			`"f:spec":{"f:containers":{}},`, 50), ",") + "}")},
	{Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
		Subresource: "status",
		FieldsV1: metav1.NewFieldsV1("{" + strings.TrimSuffix(strings.Repeat(
			`"f:status":{"f:conditions":{}},`, 35), ",") + "}")},
}

// largePod is a pod as a Deployment has them, about 5 kB as JSON.
func largePod(i int, node string, began metav1.Time) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("team-%d", i%largeNamespaces),
		Name: fmt.Sprintf("pod-%d", i),
		UID:  types.UID(fmt.Sprintf("%08d-0000-4000-8000-000000000000", i)), CreationTimestamp: began,
		ManagedFields: managed,
		Labels:        map[string]string{"app.kubernetes.io/name": "application", "pod-template-hash": "7d4b9c8f6d"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet",
			Name: "application-7d4b9c8f6d", UID: "r"}}}}
	main := corev1.Container{Name: "main", Image: "registry.example/team/application:v1.2.3",
		Args: []string{"--config=/etc/application/config.yaml", "--v=2"},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"),
			"memory": resource.MustParse("128Mi")}},
		VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/application"},
			{Name: "kube-api-access", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}}}
	for v := range 10 {
		main.Env = append(main.Env, corev1.EnvVar{Name: fmt.Sprintf("APPLICATION_SETTING_%d", v), Value: "https://service.example.svc.cluster.local:8443/path"})
	}
	p.Spec = corev1.PodSpec{NodeName: node, SchedulerName: "default-scheduler", ServiceAccountName: "application",
		RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{main},
		Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "application"}}}}}}
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, HostIP: "10.0.0.1", PodIP: "10.1.0.1",
		ContainerStatuses: []corev1.ContainerStatus{{Name: "main", Ready: true, Image: main.Image,
			ImageID:     "registry.example/team/application@sha256:" + strings.Repeat("0", 64),
			ContainerID: "containerd://" + strings.Repeat("0", 64),
			State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: began}}}}}
	for _, c := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady,
		corev1.PodReady} {
		p.Status.Conditions = append(p.Status.Conditions,
			corev1.PodCondition{Type: c, Status: corev1.ConditionTrue, LastTransitionTime: began})
	}
	return p
}

// asking is the container, which asks for a camera.
func asking(c corev1.Container) corev1.Container {
	c.Resources.Limits = corev1.ResourceList{"akri.sh/cam": resource.MustParse("1")}
	return c
}

// assigned gives the pod the slot.
func assigned(t testing.TB, pod *corev1.Pod, of slot.Name) {
	pod.Spec.Containers = []corev1.Container{asking(pod.Spec.Containers[0])}
	var c kubedevice.ContainerInfo
	assignment.Set(&c, []assignment.Grant{{Resource: "cam", Slot: of}})
	made, err := assignment.Encode(&kubedevice.PodInfo{NodeName: pod.Spec.NodeName,
		RunningContainers: map[string]kubedevice.ContainerInfo{"main": c}}, string(pod.UID), nil)
	if err != nil {
		t.Fatal(err)
	}
	pod.Annotations = made
}
