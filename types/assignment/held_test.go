package assignment

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod holds of its assignment what its containers request, and no more. Here warm, main and side
// request a cam, two cams and cam-1, and nothing.
func TestHeld(t *testing.T) {
	asks := func(name string, limits bool, requests map[corev1.ResourceName]string) corev1.Container {
		list := corev1.ResourceList{}
		for name, n := range requests {
			list[name] = resource.MustParse(n)
		}
		if limits {
			return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Limits: list}}
		}
		return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: list}}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "uid"}, Spec: corev1.PodSpec{NodeName: "node-a",
		InitContainers: []corev1.Container{asks("warm", true, map[corev1.ResourceName]string{"akri.sh/cam": "1"})},
		Containers: []corev1.Container{
			asks("main", false, map[corev1.ResourceName]string{"akri.sh/cam": "2", "akri.sh/cam-1": "1", "cpu": "1"}), asks("side", false, nil)}}}
	for name, test := range map[string]struct {
		assigned string // the JSON's containers
		holder   string // uid unless said
		want     string // containers and their slots
		wantErr  string
	}{
		"as requested": {
			assigned: `"initcontainer":{"warm":{"allocatefrom":{"akri.sh/cam/0":"cam-1-0"}}},
				"runningcontainer":{"main":{"allocatefrom":{"akri.sh/cam/0":"cam-1-0","akri.sh/cam/1":"cam-2-0","akri.sh/cam-1/0":"cam-1-1","gpu/0":"gpu/a"}}}`,
			want: "main: cam-1-0 cam-2-0 cam-1-1; warm: cam-1-0"},
		"a sidecar, filed as it runs": {assigned: `"runningcontainer":{"warm":{"allocatefrom":{"akri.sh/cam/0":"cam-1-0"}}}`, want: "warm: cam-1-0"},
		"fewer":                       {assigned: `"runningcontainer":{"main":{"allocatefrom":{"akri.sh/cam/0":"cam-1-0"}}}`, want: "main: cam-1-0"},
		"more than its limits": {
			assigned: `"initcontainer":{"warm":{"allocatefrom":{"akri.sh/cam/0":"cam-1-0","akri.sh/cam/1":"cam-2-0"}}}`,
			wantErr:  `container "warm": 2 slots of akri.sh/cam are assigned, and the container requests 1`},
		"of another resource, beside one in order": {
			assigned: `"initcontainer":{"warm":{"allocatefrom":{"akri.sh/cam/0":"cam-1-0"}}},"runningcontainer":{"main":{"allocatefrom":{"akri.sh/gps/0":"gps-1-0"}}}`,
			want:     "warm: cam-1-0",
			wantErr:  `container "main": 1 slots of akri.sh/gps are assigned, and the container requests 0`},
		"not a slot, beside one in order": {
			assigned: `"initcontainer":{"warm":{"allocatefrom":{"akri.sh/cam/0":"cam-1-0"}}},"runningcontainer":{"main":{"allocatefrom":{"akri.sh/cam/0":"cam"}}}`,
			want:     "warm: cam-1-0", wantErr: `container "main"`},
		"requests nothing":           {assigned: `"runningcontainer":{"side":{"allocatefrom":{"akri.sh/cam/0":"cam-1-0"}}}`, wantErr: `container "side"`},
		"for no container of its":    {assigned: `"runningcontainer":{"ghost":{"allocatefrom":{"akri.sh/cam/0":"cam-1-0"}}}`},
		"what it writes it requests": {assigned: `"runningcontainer":{"side":{"requests":{"akri.sh/cam":1},"allocatefrom":{"akri.sh/cam/0":"cam-1-0"}}}`, wantErr: `container "side"`},
		"another pod's":              {holder: "another", assigned: `"runningcontainer":{"main":{"allocatefrom":{"akri.sh/cam/0":"cam-1-0"}}}`},
		"malformed":                  {assigned: `"runningcontainer":7`, wantErr: "is not the JSON of a PodInfo"},
		"other devices alone":        {assigned: `"runningcontainer":{"main":{"allocatefrom":{"gpu/0":"gpu/a"}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			pod := pod.DeepCopy()
			pod.Annotations = map[string]string{Annotation: `{"nodename":"node-a",` + test.assigned + `}`, HolderAnnotation: "uid"}
			if test.holder != "" {
				pod.Annotations[HolderAnnotation] = test.holder
			}
			held, err := Held(pod)
			var got []string
			for _, container := range slices.Sorted(maps.Keys(held)) {
				line := container + ":"
				for _, g := range held[container] {
					line += " " + g.Slot.String()
				}
				got = append(got, line)
			}
			if got := strings.Join(got, "; "); got != test.want {
				t.Errorf("holds %q, want %q", got, test.want)
			}
			if (err != nil) != (test.wantErr != "") || err != nil && !strings.Contains(err.Error(), test.wantErr) {
				t.Errorf("error %v, want one with %q", err, test.wantErr)
			}
		})
	}
}
