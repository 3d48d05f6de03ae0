package brokerspec

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestPodSlots(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	container := func(n string) corev1.Container {
		var c corev1.Container
		if err := yaml.Unmarshal([]byte(`resources: {limits: {"{{PLACEHOLDER}}": "`+n+`"}}`), &c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	sidecar := container("4")
	sidecar.RestartPolicy = &always
	p := &corev1.PodSpec{Containers: []corev1.Container{container("1"), container("2"), {}},
		InitContainers: []corev1.Container{container("5")}}
	if n := PodSlots(p); n != 5 {
		t.Errorf("%d slots, want those of the init container, 5", n)
	}
	p.InitContainers = append(p.InitContainers, sidecar)
	if n := PodSlots(p); n != 7 {
		t.Errorf("%d slots, want those of containers and sidecar, 7", n)
	}
	p.InitContainers = append(p.InitContainers, container("6"))
	if n := PodSlots(p); n != 10 {
		t.Errorf("%d slots, want those of the last init container and the sidecar before it, 10", n)
	}
}

// A Job's node is not proposed to it.
func TestMeant(t *testing.T) {
	if got := (Values{}).meant("NODES"); got != "" {
		t.Errorf("in a Job%s", got)
	}
	if got, want := (Values{Node: "a"}).meant("NODES"), "; did you mean {{NODE}}?"; got != want {
		t.Errorf("in a pod%s, want%s", got, want)
	}
}
