package view

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// applyAgain is how the handler of a Configuration is changed.
const applyAgain = "delete the Configuration and apply it again: spec.discoveryHandler cannot be changed"

// configurationActions are what to do about the problems of Configurations, by reason; "" is
// of those whose messages say it.
var configurationActions = map[string]string{
	"BrokerLimit":             "",
	"BrokerNameTaken":         "",
	"BrokerNeedsMoreSlots":    "",
	"BrokersDisabled":         "",
	"DeviceLimit":             "",
	"DevicePropertiesChange":  "Have the broker read what changes from the device itself, or find out why the device changes what it announces",
	"DevicesChangeTooOften":   "",
	"DevicesNotPublished":     "",
	"DevicesRejected":         "Correct the discovery handler, or what the Configuration asks of it",
	"DiscoveryFailed":         "It is tried again; if it stays, look at the handler's pod or log on the node",
	"InstanceLimit":           "",
	"InvalidConfiguration":    "Correct the Configuration's spec",
	"InvalidDiscoveryDetails": "Correct discoveryDetails or discoveryProperties in your file, " + applyAgain,
	"MoreProblems":            "",
	"NoDiscoveryProperties":   "Create the Secret or ConfigMap with the key, and let kubecri read it",
	"NoLease":                 "Let kubecri write Leases in the Configuration's namespace: apply deploy/rbac, or run helm upgrade",
	"PropertiesWithheld":      "Add the beginnings of the names to spec.propertyPrefixes, or read them by the names that containers have",
	"ReportsLeftOut":          "Look at the problems of its Instances, and correct the discovery handler of the node that reports them",
	"SecretsNeedTLS":          "Have the handler register a unix socket, or https:// and set spec.handlerCABundle",
	"ServicesDisabled":        "",
	"TooManyDevices":          "",
	"UnknownHandler":          "",
}

// configurationProblem is a problem of the Configuration with what to do about it.
func configurationProblem(c *akriv0.Configuration, p reasonedProblem) string {
	action, known := configurationActions[p.reason]
	switch {
	case p.reason == nameTaken && !strings.HasPrefix(p.text, nameTaken): // not yet in the status
		action = "Rename one of them"
	case p.reason != nameTaken && !known:
		action = fmt.Sprintf("See kubectl describe configuration -n %s %s", c.Namespace, c.Name)
	}
	return withAction(p.text, action)
}

// instanceProblem is a problem of the Instance with what to do about it.
func instanceProblem(in *akriv0.Instance, problem string) string {
	action := fmt.Sprintf("See kubectl describe instance -n %s %s", in.Namespace, in.Name)
	switch {
	case deviceAway(problem):
		action = fmt.Sprintf("Bring the device back, or end the pods that have its slots: "+
			"kubectl kubeslot slots -n %s %s", in.Namespace, in.Name)
	case strings.HasPrefix(problem, "the claim of slot "):
		action = "The controller deletes such claims unless a pod has the slot: delete that pod, else look whether the controller runs"
	case !strings.HasPrefix(problem, "there are more problems"):
		action += ", and look at the discovery handler of the node that reports it"
	}
	return withAction(problem, action)
}

// deviceAway reports whether an Instance's problem is that it is there for the pods alone that have its
// slots (controller/instances).
func deviceAway(problem string) bool { return strings.HasPrefix(problem, "no node sees the device") }

// nodeCondition is a condition of a node that kubecri sets, with what to do about it. The
// message of the other one says it.
func nodeCondition(c corev1.NodeCondition) string {
	if c.Type == "kubeslot.io/DevicePluginsNotLoaded" {
		return withAction(c.Message, "Correct the file, and restart kubecri there: `kubecri plugin check FILE` on the node says what is wrong with it")
	}
	return c.Message
}

// withAction puts what to do behind a problem.
func withAction(problem, action string) string {
	if action == "" {
		return problem
	}
	if !strings.HasSuffix(problem, ".") && !strings.HasSuffix(problem, "?") && !strings.HasSuffix(problem, "…") {
		problem += "."
	}
	return problem + " " + action
}
