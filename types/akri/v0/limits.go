package v0

import (
	"cmp"
	"errors"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// Limits of a Configuration that says nothing of them.
const (
	DefaultMaxDevices     = 1000 // on each node
	DefaultMaxInstances   = 10000
	DefaultBrokersPerNode = 50
	DefaultBrokersTotal   = 1000
	// DefaultUnavailableNodes is on how many nodes brokers are replaced at a time.
	DefaultUnavailableNodes = 1
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

// errMaxUnavailable is of a brokerUpdate.maxUnavailable that is none, as the CRD's rule has it.
var errMaxUnavailable = errors.New("want a number of nodes from 1 to 100000, or 1% to 100% of them, such as 10%; " +
	"to replace no broker set paused: true")

// maxUnavailableNodes bounds brokerUpdate.maxUnavailable, as total does brokerLimits.
const maxUnavailableNodes = 100000

// UnavailableNodes is on how many of so many nodes brokers are replaced at a time. With an error it is
// what it is without the field: an API server whose CRD is older may have stored a wrong value.
func (s *ConfigurationSpec) UnavailableNodes(nodes int) (int, error) {
	if s.BrokerUpdate == nil || s.BrokerUpdate.MaxUnavailable == nil {
		return DefaultUnavailableNodes, nil
	}
	value, most := s.BrokerUpdate.MaxUnavailable, maxUnavailableNodes
	if value.Type == intstr.String {
		most = 100 // per cent
	}
	if n, err := intstr.GetScaledValueFromIntOrPercent(value, 100, false); err != nil || n < 1 || n > most {
		return DefaultUnavailableNodes, errMaxUnavailable
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(value, nodes, false)
	return max(n, 1), err
}

// BrokerUpdatePaused reports whether brokers that run stay as they are.
func (s *ConfigurationSpec) BrokerUpdatePaused() bool {
	return s.BrokerUpdate != nil && s.BrokerUpdate.Paused
}
