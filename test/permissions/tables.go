package permissions

// What each identity may do: see docs/security.md.
var (
	// Controller is all that the controller may do.
	Controller = []Permission{
		{Verbs: "get list watch patch", Resource: "configurations.akri.sh", To: "take off finalizers of Akri's agents"},
		{Verbs: "patch", Resource: "configurations/status.akri.sh", To: "write their status"},
		{Verbs: "get list watch create patch delete", Resource: "instances.akri.sh", To: "write the view of what nodes report"},
		{Verbs: "get list watch", Resource: "deviceslices.kubeslot.io", To: "read what nodes report"},
		{Verbs: "get list watch delete", Resource: "slotclaims.kubeslot.io", To: "free the slots of what is gone"},
		{Verbs: "get list watch", Resource: "nodes", To: "know which are Ready"},
		{Verbs: "get list watch create patch delete", Resource: "pods", To: "run brokers"},
		{Verbs: "get list watch create patch delete", Resource: "jobs.batch", To: "run brokers"},
		{Verbs: "get create", Resource: "resourceclaimtemplates.resource.k8s.io",
			To: "have brokers claim devices of DRA"},
		{Verbs: "get list watch create update delete", Resource: "services", To: "make brokers' Services"},
		{Verbs: "list watch create update delete", Resource: "resourceslices.resource.k8s.io",
			To: "publish devices for DRA"},
		{Verbs: "list create update delete", Resource: "deviceclasses.resource.k8s.io",
			To: "have one for each Configuration for DRA"},
		{Verbs: "get list", Resource: "resourceclaims.resource.k8s.io",
			To: "know which devices claims still have"},
		{Verbs: "create patch", Resource: "events", To: "tell people"},
		{Verbs: "create patch", Resource: "events.events.k8s.io", To: "tell people"},
		{Verbs: "list watch patch", Resource: "validatingwebhookconfigurations.admissionregistration.k8s.io", Name: "kubeslot-configurations", To: "have API servers trust its webhook"},
		{Verbs: "create", Resource: "tokenreviews.authentication.k8s.io", To: "know who asks for its metrics"},
		{Verbs: "create", Resource: "subjectaccessreviews.authorization.k8s.io", To: "know whether he may read them"},
		{Verbs: "create", Resource: "leases.coordination.k8s.io", In: "kube-system", To: "elect a leader"},
		{Verbs: "get update", Resource: "leases.coordination.k8s.io", In: "kube-system", Name: "kubeslot-controller", To: "elect a leader"},
		{Verbs: "get", Resource: "leases.coordination.k8s.io", In: "kube-node-lease",
			To: "know whether kubecri of a node is there"},
	}

	// ofEveryKubecri is what kubecri may do by whichever identity.
	ofEveryKubecri = []Permission{
		{Verbs: "get list watch", Resource: "configurations.akri.sh", To: "know what to discover"},
		{Verbs: "get list watch create update delete", Resource: "deviceslices.kubeslot.io", To: "say what its node sees"},
		{Verbs: "get list watch create patch delete", Resource: "slotclaims.kubeslot.io", To: "claim slots, and say whose they are"},
		{Verbs: "get", Resource: "namespaces", To: "read the labels that spec.allowedNamespaces selects"},
	}
	// Kubecri is all that kubecri may do with an identity of its own.
	Kubecri = append([]Permission{
		{Verbs: "get list watch create update", Resource: "leases.coordination.k8s.io", To: "agree on who discovers for others"},
		{Verbs: "get list watch", Resource: "pods", To: "know the assignments of its node's pods"},
		{Verbs: "get", Resource: "resourceclaims.resource.k8s.io", To: "prepare those with slots of its node"},
		{Verbs: "get list watch", Resource: "nodes", To: "know its own, and the labels of nodes that report for others"},
		{Verbs: "patch", Resource: "nodes/status", To: "advertise totals"},
		{Verbs: "create patch", Resource: "events", To: "tell people"},
		{Verbs: "create", Resource: "tokenreviews.authentication.k8s.io", To: "know who asks for its metrics"},
		{Verbs: "create", Resource: "subjectaccessreviews.authorization.k8s.io", To: "know whether he may read them"},
	}, ofEveryKubecri...)
	// Kubelet is what deploy/kubelet-identity adds to a kubelet's own permissions.
	Kubelet = append([]Permission{
		{Verbs: "get list watch", Resource: "leases.coordination.k8s.io", To: "see who discovers for others"},
	}, ofEveryKubecri...)

	// Scheduler is what the scheduler may do beyond what Kubernetes gives every scheduler.
	Scheduler = []Permission{
		{Verbs: "get list watch", Resource: "configurations.akri.sh", To: "know what can be requested"},
		{Verbs: "patch", Resource: "configurations/status.akri.sh", To: "hand devices over between slots and DRA"},
		{Verbs: "get list watch", Resource: "deviceslices.kubeslot.io", To: "know what nodes see"},
		{Verbs: "get list watch", Resource: "slotclaims.kubeslot.io", To: "know what nodes use"},
		{Verbs: "assign", Resource: "instances.akri.sh", To: "send device assignments with its bindings"},
	}
	// SchedulersClaims is what deploy/scheduler-claims adds, for claimMode Scheduler.
	SchedulersClaims = []Permission{
		{Verbs: "get create delete", Resource: "slotclaims.kubeslot.io", To: "claim slots before it binds"},
	}
	// SchedulerOfTheChart is what the chart's scheduler may do, which is not the cluster's own.
	SchedulerOfTheChart = append([]Permission{
		{Verbs: "create", Resource: "leases.coordination.k8s.io", In: "kubeslot-system", To: "elect a leader"},
		{Verbs: "get update", Resource: "leases.coordination.k8s.io", In: "kubeslot-system", Name: "kubeslot-scheduler", To: "elect a leader"},
	}, Scheduler...)

	// Uninstall is all that the chart's Job may do that cleans up after helm uninstall.
	Uninstall = []Permission{
		{Verbs: "get list", Resource: "nodes", To: "know where kubecri was"},
		{Verbs: "patch", Resource: "nodes/status", To: "take away what kubecri advertised"},
		{Verbs: "get list delete", Resource: "deviceslices.kubeslot.io", To: "delete the nodes' reports"},
		{Verbs: "get list delete", Resource: "slotclaims.kubeslot.io", To: "delete the nodes' claims"},
		{Verbs: "deletecollection", Resource: "resourceslices.resource.k8s.io",
			To: "delete those of the driver slots.kubeslot.io, and no other: a policy narrows it"},
		{Verbs: "list delete", Resource: "deviceclasses.resource.k8s.io",
			To: "delete those of Configurations, and no other: a policy narrows it"},
		{Verbs: "delete", Resource: "leases.coordination.k8s.io", In: "kubeslot-system", Name: "kubeslot-scheduler",
			To: "delete that of its leader election"},
		{Verbs: "delete", Resource: "leases.coordination.k8s.io", In: "kube-system", Name: "kubeslot-controller",
			To: "delete that of its leader election"},
		{Verbs: "delete", Resource: "leases.coordination.k8s.io", In: "kube-node-lease",
			To: "delete the kubecris', and no other: a policy narrows it"},
		{Verbs: "get list create delete", Resource: "pods", In: "kubeslot-system", To: "run a pod on each node that removes files"},
		{Verbs: "delete", Resource: "configurations.akri.sh", In: "kubeslot-system", To: "delete those that the chart made"},
		{Verbs: "list", Resource: "configurations.akri.sh", To: "know which stay"},
		{Verbs: "update", Resource: "configurations/status.akri.sh", To: "have them say that nobody serves them"},
	}
)
