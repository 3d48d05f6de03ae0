package v0

import "cmp"

// Limits of a Configuration that says nothing of them.
const (
	DefaultMaxDevices     = 1000 // on each node
	DefaultMaxInstances   = 10000
	DefaultBrokersPerNode = 50
	DefaultBrokersTotal   = 1000
)

// DevicesLimit is how many devices a node reports.
func (s *ConfigurationSpec) DevicesLimit() int {
	return int(cmp.Or(s.MaxDevices, DefaultMaxDevices))
}

// InstancesLimit is how many devices get an Instance.
func (s *ConfigurationSpec) InstancesLimit() int {
	return int(cmp.Or(s.MaxInstances, DefaultMaxInstances))
}

// BrokersLimit is how many broker pods there may be on one node, and in total.
func (s *ConfigurationSpec) BrokersLimit() (perNode, total int) {
	var l BrokerLimits
	if s.BrokerLimits != nil {
		l = *s.BrokerLimits
	}
	return int(cmp.Or(l.PerNode, DefaultBrokersPerNode)), int(cmp.Or(l.Total, DefaultBrokersTotal))
}
