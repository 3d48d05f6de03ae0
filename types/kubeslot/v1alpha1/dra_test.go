package v1alpha1

import (
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// However long the names are, the pool has a name that the API takes, and each node and Configuration its own.
func TestDRAPool(t *testing.T) {
	if got := DRAPool("cam-8120fe", "node-a", false); got != "cam/node-a" {
		t.Errorf("pool %q", got)
	}
	if got := DRAPool("cam-8120fe", "node-a", true); got != "cam-8120fe" {
		t.Errorf("pool %q of a shared device", got)
	}
	long, seen := strings.Repeat("n", validation.DNS1123SubdomainMaxLength-1), map[string]bool{}
	for _, node := range []string{long + "a", long + "b"} {
		for _, instance := range []string{"cam-8120fe", strings.Repeat("c", 56) + "-8120fe"} {
			pool := DRAPool(instance, node, false)
			configuration, of, _ := strings.Cut(pool, "/")
			if len(pool) > resourceapi.PoolNameMaxLength || len(validation.IsDNS1123Subdomain(of)) > 0 ||
				configuration != DeviceConfiguration(instance) || seen[pool] {
				t.Errorf("pool %q of %d characters", pool, len(pool))
			}
			seen[pool] = true
		}
	}
}
