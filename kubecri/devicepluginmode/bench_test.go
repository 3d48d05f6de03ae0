package devicepluginmode

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// BenchmarkDecide chooses one id of a Configuration with 5,000 Instances of two slots. Of
// each a container of this node uses one.
func BenchmarkDecide(b *testing.B) {
	no := false
	for name, spec := range map[string]akriv0.ConfigurationSpec{"Container": {}, "Node": {UniqueScope: akriv0.UniquePerNode}, "none": {UniqueDevices: &no}} {
		b.Run("unique="+name, func(b *testing.B) {
			const instances = 5000
			devices := make([]string, instances)
			for i := range devices {
				devices[i] = fmt.Sprint("device-", i)
			}
			r := newRig(b, newAPI(), "a", spec, devices...)
			for i, in := range r.resource(cam).Instances {
				s := slot.Name{Instance: in.Name, Index: 1}
				id := map[string]string{"Container": fmt.Sprint("cam-", i), "Node": in.Name, "none": s.String()}[name]
				key, value := slot.Annotation(s, id)
				r.machine.containers = append(r.machine.containers,
					&runtimeapi.Container{Id: id, PodSandboxId: id, Annotations: map[string]string{key: value}})
				r.shows(&v1alpha1.SlotClaim{ObjectMeta: metav1.ObjectMeta{Name: s.String(), UID: types.UID(id),
					ResourceVersion: "1"},
					Spec: v1alpha1.SlotClaimSpec{NodeName: "a", Level: v1alpha1.ConfigurationLevel, Holder: id}}, false)
			}
			if err := r.refresh(b.Context()); err != nil {
				b.Fatal(err)
			}
			var available []string
			for _, d := range r.resource(cam).List() {
				available = append(available, d.ID)
			}
			for b.Loop() {
				if ids, err := r.resource(cam).Prefer(available, nil, 1); err != nil || len(ids) != 1 {
					b.Fatal(ids, err)
				}
			}
		})
	}
}
