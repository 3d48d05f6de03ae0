package v0

import "testing"

// A Configuration that says nothing, or one number alone, has the other limits by default.
func TestLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		spec                               ConfigurationSpec
		devices, instances, perNode, total int
	}{
		"none":     {ConfigurationSpec{}, 1000, 10000, 50, 1000},
		"empty":    {ConfigurationSpec{BrokerLimits: &BrokerLimits{}}, 1000, 10000, 50, 1000},
		"per node": {ConfigurationSpec{BrokerLimits: &BrokerLimits{PerNode: 3}}, 1000, 10000, 3, 1000},
		"total":    {ConfigurationSpec{BrokerLimits: &BrokerLimits{Total: 7}}, 1000, 10000, 50, 7},
		"all": {ConfigurationSpec{MaxDevices: 9, MaxInstances: 2, BrokerLimits: &BrokerLimits{PerNode: 3, Total: 7}},
			9, 2, 3, 7},
	} {
		perNode, total := tc.spec.BrokersLimit()
		if devices := tc.spec.DevicesLimit(); devices != tc.devices {
			t.Errorf("%s: %d devices, want %d", name, devices, tc.devices)
		}
		if instances := tc.spec.InstancesLimit(); instances != tc.instances || perNode != tc.perNode || total != tc.total {
			t.Errorf("%s: %d Instances, %d brokers on a node, %d in total", name, instances, perNode, total)
		}
	}
}
