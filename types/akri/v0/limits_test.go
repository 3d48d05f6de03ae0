package v0

import "testing"

// A Configuration that says nothing, or one number alone, has the other limits by default.
func TestLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		spec                      ConfigurationSpec
		instances, perNode, total int
	}{
		"none":     {ConfigurationSpec{}, 10000, 50, 1000},
		"empty":    {ConfigurationSpec{BrokerLimits: &BrokerLimits{}}, 10000, 50, 1000},
		"per node": {ConfigurationSpec{BrokerLimits: &BrokerLimits{PerNode: 3}}, 10000, 3, 1000},
		"total":    {ConfigurationSpec{BrokerLimits: &BrokerLimits{Total: 7}}, 10000, 50, 7},
		"all":      {ConfigurationSpec{MaxInstances: 2, BrokerLimits: &BrokerLimits{PerNode: 3, Total: 7}}, 2, 3, 7},
	} {
		perNode, total := tc.spec.BrokersLimit()
		if instances := tc.spec.InstancesLimit(); instances != tc.instances || perNode != tc.perNode || total != tc.total {
			t.Errorf("%s: %d Instances, %d brokers on a node, %d in total", name, instances, perNode, total)
		}
	}
}
