//go:build !race

package memorylimit_test

import (
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/kubecri/discoveryworker"
)

// Whichever of them is reached first: the numbers that an operator reads are one.
func TestTheContainersLimitIsTheWorkers(t *testing.T) {
	data, err := os.ReadFile("../../../deploy/helm/kubeslot/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		Kubecri struct {
			DiscoveryResources corev1.ResourceRequirements `json:"discoveryResources"`
		} `json:"kubecri"`
	}
	if err := yaml.Unmarshal(data, &values); err != nil {
		t.Fatal(err)
	}
	if limit := values.Kubecri.DiscoveryResources.Limits.Memory(); limit.Value() != discoveryworker.MaxMemory {
		t.Errorf("the chart's container has %v, the worker limits itself to %d MiB",
			limit, discoveryworker.MaxMemory>>20)
	}
}
