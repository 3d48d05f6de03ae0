package informer

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// started is a pod as the API server has it, of one container with slots. It has what admission adds, too.
func started(node string) *v1.Pod {
	projected := &v1.ProjectedVolumeSource{DefaultMode: ptr.To[int32](420), Sources: []v1.VolumeProjection{
		{ServiceAccountToken: &v1.ServiceAccountTokenProjection{ExpirationSeconds: ptr.To[int64](3607), Path: "token"}},
		{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "kube-root-ca.crt"},
			Items: []v1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
		{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{{Path: "namespace",
			FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}}}}},
	}}
	c := v1.Container{Name: "main", Image: "pause", Command: []string{"/pause"}, Env: []v1.EnvVar{{Name: "A",
		Value: "b"}},
		Ports:     []v1.ContainerPort{{HostPort: 80}},
		Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"akri.sh/cam": resource.MustParse("1")}},
		VolumeMounts: []v1.VolumeMount{{Name: "kube-api-access",
			MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}},
	}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{"KubeDevice/DeviceInfo": "{}"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}}}
	p.Spec = v1.PodSpec{NodeName: node, SecurityContext: &v1.PodSecurityContext{},
		Containers: []v1.Container{c}, InitContainers: []v1.Container{*c.DeepCopy()},
		Volumes: []v1.Volume{
			{Name: "data",
				VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}},
			{Name: "kube-api-access", VolumeSource: v1.VolumeSource{Projected: projected}},
		}}
	return p
}

// A bound pod loses what no plugin asks for, and nothing else; one that waits loses its managed fields alone.
func TestTrim(t *testing.T) {
	for _, node := range []string{"", "node-a"} {
		want := started(node)
		want.ManagedFields = nil
		if node != "" {
			for _, c := range []*v1.Container{&want.Spec.Containers[0], &want.Spec.InitContainers[0]} {
				c.Command, c.Env, c.VolumeMounts = nil, nil, nil
			}
			want.Spec.Volumes, want.Spec.SecurityContext = want.Spec.Volumes[:1], nil
		}
		got, err := Trim(started(node))
		if err != nil || !apiequality.Semantic.DeepEqual(got, want) {
			t.Errorf("on node %q: %v, %v; want %v", node, got, err, want)
		}
	}
	node := &v1.Node{ObjectMeta: started("").ObjectMeta}
	if _, err := Trim(node); err != nil || node.ManagedFields != nil || len(node.Annotations) == 0 {
		t.Errorf("a Node: %v, %v", node, err)
	}
	gone := cache.DeletedFinalStateUnknown{Key: "default/p"}
	if got, err := Trim(gone); err != nil || got != gone {
		t.Errorf("what is no pod: %v, %v", got, err)
	}
}

// BenchmarkPodsAtRest is what bound pods take of the heap, as they are and without what is dropped.
func BenchmarkPodsAtRest(b *testing.B) {
	const pods = 5_000
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	for _, trimmed := range []bool{false, true} {
		b.Run(fmt.Sprintf("trimmed=%t", trimmed), func(b *testing.B) {
			for b.Loop() {
				before, kept := heap(), make([]*v1.Pod, pods)
				for i := range kept {
					raw, err := started("node-a").Marshal()
					kept[i] = &v1.Pod{}
					if err = errors.Join(err, kept[i].Unmarshal(raw)); err != nil {
						b.Fatal(err)
					}
					if trimmed {
						_, err = Trim(kept[i])
					} else {
						kept[i].ManagedFields = nil // as upstream's
					}
					if err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric((heap()-before)/pods, "bytes/pod")
				runtime.KeepAlive(kept)
			}
		})
	}
}
