package scheduler

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeschedulerv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"sigs.k8s.io/yaml"
)

const (
	driverName       = "test-driver.cdi.k8s.io"
	fillNamespace    = "fill"
	measureNamespace = "test"
	deviceNodePrefix = "device-node-"
)

// op is one of scheduler_perf's operations.
type op map[string]any

// writeConfig writes the run as a configuration file of scheduler_perf, with the
// templates that it refers to, and returns its path.
func (r run) writeConfig(b *testing.B) string {
	dir := b.TempDir()
	write := func(name string, content any) string {
		text, err := yaml.Marshal(content)
		if err != nil {
			b.Fatalf("write %s: %v", name, err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			b.Fatal(err)
		}
		return path
	}
	ops := []op{
		{"opcode": "createNodes", "count": r.nodes - r.deviceNodes, "nodeTemplatePath": write("node.yaml", r.node(false))},
		{"opcode": "createNodes", "count": r.deviceNodes, "nodeTemplatePath": write("device-node.yaml", r.node(true))},
	}
	if r.dra {
		ops = append(ops, op{"opcode": "createAny", "templatePath": write("class.yaml", r.deviceClass())})
	}
	createPods := func(namespace string, count, slots int, measure bool) {
		if r.dra && r.prefix == "" {
			template := write(namespace+"-claim.yaml", r.claimTemplate(slots))
			ops = append(ops, op{"opcode": "createAny", "namespace": namespace, "templatePath": template})
		}
		ops = append(ops, op{"opcode": "createPods", "namespace": namespace, "count": count,
			"podTemplatePath": write(namespace+"-pod.yaml", r.pod(slots, r.kinds()...)), "collectMetrics": measure})
	}
	if r.fill > 0 {
		createPods(fillNamespace, r.fill, r.fillSlots, false)
	}
	createPods(measureNamespace, r.pods, 1, true)

	test := map[string]any{
		"name":         fmt.Sprintf("shape=%s/arm=%s", r.shape.name, r.arm.name),
		"labels":       []string{"performance"},
		"featureGates": gates(),
		// The default has thousands of labels, and each takes a while to collect.
		"metricsCollectorConfig": map[string]any{},
		"workloadTemplate":       ops,
		"workloads":              []any{map[string]any{"name": fmt.Sprintf("nodes=%d", r.nodes)}},
	}
	if *batching {
		test["schedulerConfigPath"] = write("scheduler.yaml", batchable())
	}
	return write("config.yaml", []any{test})
}

// batchable is a scheduler's configuration with which pods can be batched:
// PodTopologySpread signs none that its default constraints apply to.
func batchable() any {
	return map[string]any{
		"apiVersion": kubeschedulerv1.SchemeGroupVersion.String(), "kind": "KubeSchedulerConfiguration",
		"profiles": []any{map[string]any{
			"schedulerName": v1.DefaultSchedulerName,
			"pluginConfig": []any{map[string]any{
				"name": names.PodTopologySpread,
				"args": map[string]any{"defaultingType": kubeschedulerv1.ListDefaulting},
			}},
		}},
	}
}

// gates are the same for all arms.
func gates() map[string]bool {
	return map[string]bool{
		// It is on anyway; named here, the harness starts the claim controller.
		string(features.DynamicResourceAllocation): true,
		string(features.DRAExtendedResource):       true,
		string(features.DRAConsumableCapacity):     true,
		string(features.OpportunisticBatching):     *batching,
		string(features.SchedulerPreQueueingHints): *preQueueing,
	}
}

func (r run) node(devices bool) *v1.Node {
	capacity := v1.ResourceList{
		v1.ResourcePods:   resource.MustParse("110"),
		v1.ResourceCPU:    resource.MustParse("32"),
		v1.ResourceMemory: resource.MustParse("256Gi"),
	}
	prefix := "node-"
	if devices {
		prefix = deviceNodePrefix
		if r.onNode {
			for _, kind := range r.kinds() {
				maps.Copy(capacity, r.amount(kind, r.slots))
			}
		}
	}
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{GenerateName: prefix},
		Status: v1.NodeStatus{
			Capacity: capacity, Allocatable: capacity,
			Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
		},
	}
}

func (r run) deviceClass() *resourceapi.DeviceClass {
	class := &resourceapi.DeviceClass{
		TypeMeta:   metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "DeviceClass"},
		ObjectMeta: metav1.ObjectMeta{Name: kindName},
		Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{{
			CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", driverName)},
		}}},
	}
	if r.allocatorDRA {
		of := publishedClass()
		class.Name, class.Spec = of.Name, of.Spec
	}
	if r.prefix != "" {
		name := r.prefix + kindName
		class.Spec.ExtendedResourceName = &name
	}
	return class
}

func (a arm) claimTemplate(n int) *resourceapi.ResourceClaimTemplate {
	template := &resourceapi.ResourceClaimTemplate{
		TypeMeta:   metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceClaimTemplate"},
		ObjectMeta: metav1.ObjectMeta{Name: claimTemplateName(n)},
		Spec: resourceapi.ResourceClaimTemplateSpec{Spec: resourceapi.ResourceClaimSpec{
			Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
				Name: "devices",
				Exactly: &resourceapi.ExactDeviceRequest{
					DeviceClassName: kindName, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: int64(n),
				},
			}}},
		}},
	}
	if a.allocatorDRA {
		template.Spec.Spec.Devices = publishedRequest(n)
	}
	return template
}
