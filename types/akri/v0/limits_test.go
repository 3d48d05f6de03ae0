package v0

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
)

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

// A per cent is of the nodes, rounded down as a Deployment's, and never none.
func TestUnavailableNodes(t *testing.T) {
	for value, want := range map[string]struct {
		of10, of3000 int
		wrong        bool
	}{
		"": {1, 1, false}, "1": {1, 1, false}, "7": {7, 7, false}, "100000": {100000, 100000, false},
		"1%": {1, 30, false}, "25%": {2, 750, false}, "99%": {9, 2970, false}, "100%": {10, 3000, false},
		"0": {1, 1, true}, "-1": {1, 1, true}, "100001": {1, 1, true}, "0%": {1, 1, true}, "101%": {1, 1, true},
		"-5%": {1, 1, true}, "abc": {1, 1, true}, "5.5%": {1, 1, true}, "%": {1, 1, true},
	} {
		s := ConfigurationSpec{}
		if value != "" {
			v := intstr.Parse(value)
			s.BrokerUpdate = &BrokerUpdate{MaxUnavailable: &v}
		}
		few, err := s.UnavailableNodes(10)
		many, _ := s.UnavailableNodes(3000)
		if few != want.of10 || many != want.of3000 || (err != nil) != want.wrong {
			t.Errorf("%q: %d of 10 nodes and %d of 3000, %v", value, few, many, err)
		}
	}
	for nodes := range 3 {
		v := intstr.FromString("30%")
		s := ConfigurationSpec{BrokerUpdate: &BrokerUpdate{MaxUnavailable: &v}}
		if n, err := s.UnavailableNodes(nodes); n != 1 || err != nil {
			t.Errorf("30%% of %d nodes: %d, %v", nodes, n, err)
		}
	}
}
