package configurations

import akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"

// Disabled are parts of the controller that do not run.
type Disabled struct{ Brokers, Services bool }

// Messages of what a Configuration asks for in vain.
const (
	noBrokers = "the controller runs no brokers: enable them (--enable-brokers, the chart's " +
		"controller.brokers.enabled), or remove spec.brokerSpec"
	noServices = "the controller makes no Services: enable them (--enable-services, the chart's " +
		"controller.services.enabled), or remove spec.instanceServiceSpec and spec.configurationServiceSpec"
)

// problems are what the Configuration asks for and does not get.
func (d Disabled) problems(c *akriv0.Configuration) []akriv0.ConfigurationProblem {
	switch {
	case !c.Spec.HasBroker():
		return nil
	case d.Brokers:
		return []akriv0.ConfigurationProblem{{Reason: brokersDisabled, Message: noBrokers}}
	case d.Services && (c.Spec.InstanceServiceSpec != nil || c.Spec.ConfigurationServiceSpec != nil):
		return []akriv0.ConfigurationProblem{{Reason: servicesDisabled, Message: noServices}}
	}
	return nil
}
