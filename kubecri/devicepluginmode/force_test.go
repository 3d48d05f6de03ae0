package devicepluginmode

import (
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// The kubelet gives out again what a pod has that was deleted by force, while its containers run. No other container
// gets their slots before they have ended.
func TestPodDeletedByForce(t *testing.T) {
	no := false
	for name, test := range map[string]struct {
		spec akriv0.ConfigurationSpec
		of   key
	}{
		"scope Container": {akriv0.ConfigurationSpec{}, cam},
		"scope Node":      {akriv0.ConfigurationSpec{UniqueScope: akriv0.UniquePerNode}, cam},
		"slots":           {akriv0.ConfigurationSpec{UniqueDevices: &no}, cam},
		"an Instance":     {akriv0.ConfigurationSpec{}, east()},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, newAPI(), "a", test.spec, "east", "west")
			var all []string
			for _, d := range r.resource(test.of).List() {
				all = append(all, d.ID)
			}
			ids, err := r.prefer(t.Context(), test.of, all, nil, 1)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := r.allocate(t.Context(), test.of, ids)
			if err != nil {
				t.Fatal(err)
			}
			container := &runtimeapi.Container{Id: "c", PodSandboxId: "s", Annotations: answer.Annotations,
				State: runtimeapi.ContainerState_CONTAINER_RUNNING}
			r.machine.containers = []*runtimeapi.Container{container}
			if err := r.refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := r.allocate(t.Context(), test.of, ids); err == nil ||
				!strings.Contains(err.Error(), "deleted by force") {
				t.Errorf("its slot is given to another container, error %v", err)
			}
			if others, err := r.prefer(t.Context(), test.of, all, nil, 1); err != nil || others[0] == ids[0] {
				t.Errorf("prefers %v (%v) to what is free", others, err)
			}
			if _, err := r.prefer(t.Context(), test.of, ids, nil, 1); err == nil ||
				!strings.Contains(err.Error(), "deleted by force") {
				t.Errorf("prefers it, or does not say why not: %v", err)
			}
			r.machine.containers = []*runtimeapi.Container{{Id: "c", PodSandboxId: "s", Annotations: answer.Annotations,
				State: runtimeapi.ContainerState_CONTAINER_EXITED}}
			if _, err := r.allocate(t.Context(), test.of, ids); err != nil {
				t.Errorf("once it has ended: %v", err)
			}
		})
	}
}

// A runtime without events has a container that is not known yet when its pod is deleted by force: no other gets its
// slot, be it held still or released just now.
func TestPodDeletedByForceBeforeItsContainerIsKnown(t *testing.T) {
	for name, released := range map[string]bool{"held": false, "released": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, newAPI(), "a", akriv0.ConfigurationSpec{}, "east")
			ids := []string{east().instance + "-0"}
			if _, err := r.prefer(t.Context(), east(), ids, nil, 1); err != nil {
				t.Fatal(err)
			}
			answer, err := r.allocate(t.Context(), east(), ids)
			if err != nil {
				t.Fatal(err)
			}
			if released {
				r.step(settling)
				if err := r.refresh(t.Context()); err != nil || len(r.api.usage()) > 0 {
					t.Fatalf("%v, claims %v", err, r.api.usage())
				}
			}
			r.machine.containers = []*runtimeapi.Container{{Id: "c", PodSandboxId: "s", Annotations: answer.Annotations,
				State: runtimeapi.ContainerState_CONTAINER_RUNNING}}
			for what, give := range map[string]func() error{
				"prefers":   func() error { _, err := r.prefer(t.Context(), east(), ids, nil, 1); return err },
				"allocates": func() error { _, err := r.allocate(t.Context(), east(), ids); return err },
			} {
				if err := give(); err == nil || !strings.Contains(err.Error(), "deleted by force") {
					t.Errorf("%s what a container has, error %v", what, err)
				}
			}
			r.machine.containers = nil
			if _, err := r.allocate(t.Context(), east(), ids); err != nil {
				t.Errorf("once it has ended: %v", err)
			}
		})
	}
}

// The kubelet may give out what it lists a pod with: while its pod-resources are read it forgets what it is about to
// give. No second pod gets the slot, until the first is gone.
func TestDeviceOfAnotherPod(t *testing.T) {
	r := newRig(t, newAPI(), "a", akriv0.ConfigurationSpec{}, "east")
	if _, err := r.allocate(t.Context(), cam, []string{"cam-0"}); err != nil {
		t.Fatal(err)
	}
	device := &podresourcesapi.ContainerDevices{ResourceName: "akri.sh/cam", DeviceIds: []string{"cam-0"}}
	container := &podresourcesapi.ContainerResources{Devices: []*podresourcesapi.ContainerDevices{device}}
	r.machine.listed = []*podresourcesapi.PodResources{{Name: "p", Namespace: "default",
		Containers: []*podresourcesapi.ContainerResources{container}}}
	if err := r.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.allocate(t.Context(), cam, []string{"cam-0"}); err == nil ||
		!strings.Contains(err.Error(), "another pod has it") {
		t.Errorf("its slot is given to another pod, error %v", err)
	}
	r.machine.listed = nil
	if _, err := r.allocate(t.Context(), cam, []string{"cam-0"}); err != nil {
		t.Errorf("once it is gone: %v", err)
	}
}
