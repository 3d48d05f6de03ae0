package message

import "regexp"

// podLimit is the end of what the scheduler says of a pod that asks for too much.
const podLimit = `a pod may request at most \d+ slots, of at most \d+ resources \([^)]*\): split it into several`

// schedulerTexts are the reasons of plugins at PreFilter, Filter, Reserve and Bind.
var schedulerTexts = []known{
	// Slots: device-scheduler/ledger/shortfall.go.
	text(Slots, "NoSuchResource", container+` requests `+resource+`, but there is no Configuration or Instance "(?P<name>[^"]*)"; did you mean "(?P<meant>[^"]*)"\?`,
		`correct the name in the pod's resources to $meant, or create the Configuration $name`),
	text(Slots, "NoSuchResource", container+` requests `+resource+`, but there is no Configuration or Instance "(?P<name>[^"]*)"`,
		`create the Configuration $name, or correct the name in the pod's resources`),
	text(Slots, "NoDevice", `no node reaches an Instance for `+resource+`, requested by `+container+`(?:[:;] [^,]*)?`,
		`a node has to find a device`),
	text(Slots, "DevicesApart", `no node reaches Instances for all that the pod requests: of the nodes that do for its other requests, none does for `+resource+`, requested by `+container,
		`one node has to reach devices for all requests, or the pod has to be split`),
	text(Slots, "NotReached", `node\(s\) reach no Instance for `+resource+`, requested by `+container, `a device of it has to be found there`),
	text(Slots, "TooFewDevices", `node\(s\) cannot serve `+resource+`: `+container+` requests \d+ slots of the one Instance, and with uniqueDevices a container gets one`,
		`request 1, or, if its capacity is above 1, set uniqueDevices: false in its Configuration`),
	text(Slots, "TooFewDevices", `node\(s\) reach too few Instances for `+resource+`: `+container+` needs \d+ different ones \(uniqueDevices\), \d+ reached`,
		`request fewer, have more devices found, or, if its capacity is above 1, set uniqueDevices: false in its Configuration`),
	text(Slots, "TooFewDevices", `node\(s\) reach too few slots for `+resource+`: `+container+` needs \d+, \d+ reached`,
		`request fewer, have more devices found, or raise the Configuration's capacity`),
	text(Slots, "SlotsHeld", `node\(s\) short of `+resource+`: `+container+` needs \d+(?:, at most one slot per Instance (?:in|on) each \w+)?; \d+ of \d+ slots free on \d+ Instances, \d+ held(?:, and this pod's other requests take \d+)?(?:; \d+ of the Instances are DRA's)?`,
		`pods that hold slots of it have to end`),
	text(Slots, "SearchLimit", `node\(s\) where the search for slots of `+resource+` was given up: \d+ of \d+ slots free on \d+ Instances, and too many ways to give them to the pod's containers; let fewer containers of the pod request it, or set uniqueDevices: false`,
		`let fewer containers of the pod request it, or set uniqueDevices: false in its Configuration`),
	text(Slots, "NotAdvertised", `node\(s\) (?:not advertising enough|whose kubelet has too few) `+resource+`: \d+ of \d+ in use, \d+ requested`,
		`the node has to advertise what it reaches: that takes a moment; if it stays, look at kubecri there`),
	text(Slots, "KubecriAway", `kubecri is not ready on the node`,
		`kubecri's pod has to be Ready there: kubectl get pods -A -l app.kubernetes.io/name=kubecri -o wide`),
	text(Slots, "InvalidRequest", container+` requests \S+ of `+resource+`: want a whole number from 0 to \d+`, `correct the number in the pod's resources`),
	text(Slots, "InvalidRequest", `with `+container+` the pod requests more than \d+ slots; `+podLimit, `split the pod`),
	text(Slots, "InvalidRequest", `the pod requests slots of \d+ resources; `+podLimit, `split the pod`),
	text(Slots, "ResourceNameTaken", resource+` is also the extendedResourceName of DeviceClass (?P<class>[^,]+), so that DRA would give a device as well: change that name in the DeviceClass, or delete it`,
		`change extendedResourceName in DeviceClass $class, or delete it`),
	text(Slots, "AllocatedByDRA", resource+` is given by DRA: Configuration (?P<configuration>\S+) has `+
		`spec\.allocator DRA: request it with a ResourceClaim of DeviceClass (?P<class>[^\s,;]+)(?:; [^,]*)?`,
		`request a ResourceClaim of DeviceClass $class, or set allocator: Slots in Configuration $configuration`),
	text(Slots, "AllocatedByDRA", resource+` is given by DRA until Configuration (?P<configuration>\S+) has `+
		`changed to allocator Slots: the pod is tried again then`,
		`nothing: it is tried again when the Configuration has changed`),
	text(Slots, "NamespaceNotAllowed", `pods of namespace (?P<namespace>\S+) may not use `+resource+`: spec.allowedNamespaces of Configuration (?P<configuration>\S+) does not allow the namespace`,
		`add the namespace $namespace to spec.allowedNamespaces of Configuration $configuration, or create the pod in a namespace that it allows`),
	text(Slots, "NamespaceNotAllowed", `it cannot be told whether pods of namespace (?P<namespace>\S+) may use `+resource+`: [^,]*`,
		`correct spec.allowedNamespaces of the Configuration; if it is right, look at the scheduler's log`),
	text(Slots, "SchedulerStarting", `the Configurations, DeviceSlices and SlotClaims have not been read yet: .*`,
		`the scheduler has to read them: if it stays, install the CRDs and the scheduler's permissions`),
	text(Slots, "SlotClaimed", `cannot be bound to node (?P<node>\S+): .*; the pod is tried again`, `nothing: it is tried again`),
	text(Slots, "ManagedNode", `cannot be bound to node (?P<node>\S+) \S+ an assignment: .*; the pod is tried again`, `nothing: it is tried again`),
	text(Slots, "AssignmentTooLarge", `with its device assignment of \d+ bytes the annotations of pod \S+ would take \d+ bytes, of \d+ allowed: .*`,
		`request fewer slots in one pod, or shorten its annotations`),

	// The annotation, and devices of plugins: kube-scheduler/deviceplugins.
	text(Plugins, "InvalidAnnotation", `(?:`+container+`: )?annotation KubeDevice/DeviceInfo.*`, `correct the pod's annotation KubeDevice/DeviceInfo`),
	text(Plugins, "InvalidAnnotation", `unknown annotation key "(?P<annotation>[^"]*)": rename or remove it; did you mean "(?P<meant>[^"]*)"\?`, `rename the pod's annotation $annotation to $meant, or remove it`),
	text(Plugins, "InvalidAnnotation", `container "(?P<container>[^"]*)" requests -\d+ of "[^"]*": a count cannot be negative`, `correct the number in the pod's annotation`),
	text(Plugins, "NodeAnnotationInvalid", `node annotation KubeDevice/DeviceInfo[^,]*`, `look at the device plugins of that node's kubecri`),
	text(Plugins, "NoPlugin",
		`the pod's annotation requests .*?, and no device scheduler plugin is loaded: see the scheduler's --devschedpath(?: and --plugin-sockets)?`,
		`start the scheduler with the plugin in --devschedpath, or the plugin with its socket in --plugin-sockets`),
	text(Plugins, "NoPlugin", `no device scheduler plugin answers for \d+ of "(?P<resource>[^"]*)"`+
		`(?: for container "[^"]*")?(?:: kubecri gives it only to containers that such a plugin assigned it to)?`,
		`load the scheduler's half of the plugin for it (--devschedpath), or correct the name`),
	text(Plugins, "TooFewDevices", `\d+ of "(?P<resource>[^"]*)"(?: for container "[^"]*")? is more than the node has`, `request fewer, or a node with more`),
	text(Plugins, "TooFewDevices", `Never enough `+resource, `request fewer, or a node with more of $resource together: the end of other pods would not help`),
	text(Plugins, "InvalidRequest", `\d+ of "(?P<resource>[^"]*)"(?: for container "[^"]*")? is more than the \d+ that may be requested`, `request fewer`),
	text(Plugins, "SchedulerStarting", `the nodes and pods have not been read yet`, `nothing: it is tried again when they are`),
	text(Plugins, "NodeUnknown", `the node's devices are not known yet`, `that node's kubecri has to say which devices it has`),
	text(Plugins, "PluginRefuses", `a device scheduler plugin refuses the node`, `pods with devices there have to end, or see the scheduler's log`),
	text(Plugins, "PluginFault", `allocate devices of node (?P<node>\S+) to pod \S+: .*`, `see the scheduler's log; it is tried again`),
	text(Plugins, "PluginFault", `(?:device )?(?:scheduler )?(?:device )?(?:scheduler )?plugin "(?P<plugin>[^"]*)".*`, `see the scheduler's log; it is tried again`),

	// Nodes: kube-scheduler's own plugins.
	text(Nodes, "InsufficientResource", `Insufficient `+resource, `pods that use $resource have to end, or a node with more of it`),
	text(Nodes, "TooManyPods", `Too many pods`, `pods have to end there, or another node`),
	text(Nodes, "NodeCordoned", `node\(s\) were unschedulable`, `kubectl uncordon the node`),
	text(Nodes, "NodeCordoned", `node\(s\) had unknown conditions`, `the node has to report its condition`),
	text(Nodes, "NodeTainted", `node\(s\) had untolerated taint\(s\)`, `a toleration in the pod, or the taint has to go`),
	text(Nodes, "NodeTainted", `node\(s\) had untolerated taint \{(?P<taint>[^}]*)\}`, `a toleration of $taint in the pod, or the taint has to go`),
	text(Nodes, "NodeTainted", `node\(s\) had taints that the pod didn't tolerate`, `a toleration in the pod, or the taint has to go`),
	text(Nodes, "NodeNotSelected", `node\(s\) didn't match Pod's node affinity/selector`, `another nodeSelector or node affinity in the pod, or labels on the node`),
	text(Nodes, "NodeNotSelected", `node\(s\) didn't match scheduler-enforced node affinity`, `see addedAffinity in the scheduler's configuration`),
	text(Nodes, "NodeNotSelected", `pod affinity terms conflict`, `correct the node affinity of the pod`),
	text(Nodes, "NodeNotSelected", `node\(s\) didn't match the requested node name`, `leave out spec.nodeName`),
	text(Nodes, "NodeNotSelected", `node\(s\) didn't satisfy plugin\(s\) \[[^\]]*\]`, `a node where the devices are, and that the pod's other demands allow`),
	text(Nodes, "NodeNotSelected", `PreFilter plugin\(s\) [^,]* leave no node.*|node\(s\) didn't satisfy plugin [^,]*`, `a node that all of the pod's demands allow`),
	text(Nodes, "NodeFeatureMissing", `node declared features check failed - unsatisfied requirements[^,]*|node\(s\) didn't match Pod's required features`, `a node with a newer kubelet`),
	text(Nodes, "PortInUse", `node\(s\) didn't have free ports for the requested pod ports`, `the pod that has the host port has to end, or another port`),
	text(Nodes, "PodAffinity", `node\(s\) didn't match pod affinity rules`, `a pod that its podAffinity asks for has to run there`),
	text(Nodes, "PodAffinity", `node\(s\) didn't match pod anti-affinity rules`, `the pods that its podAntiAffinity excludes have to end there`),
	text(Nodes, "PodAffinity", `node\(s\) didn't satisfy existing pods anti-affinity rules`, `the pods whose podAntiAffinity excludes it have to end there`),
	text(Nodes, "TopologySpread", `node\(s\) didn't match pod topology spread constraints(?: \(missing required label\))?`, `pods elsewhere, or a larger maxSkew`),
	text(Nodes, "Volume", `node\(s\) exceed max volume count`, `pods with volumes have to end there`),
	text(Nodes, "Volume", `node\(s\) (?:did not have enough free storage|unavailable due to one or more pvc\(s\) bound to non-existent pv\(s\)|had no available volume zone|had no available disk|unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod|didn't find available persistent volumes to bind|didn't match PersistentVolume's node affinity|had volume node affinity conflict|did not have CSI driver[^,]*)`,
		`see kubectl describe of the pod's PersistentVolumeClaims`),
	text(Pod, "Volume", `pod has unbound immediate PersistentVolumeClaims(?:\.[^,]*)?`, `a PersistentVolume for the claim: kubectl describe pvc`),
	text(Pod, "Volume", `persistentvolumeclaim "(?P<claim>[^"]*)" (?:not found|is being deleted|bound to non-existent persistentvolume "[^"]*")`, `create PersistentVolumeClaim $claim anew`),
	text(Pod, "Volume", `(?:waiting for (?:ephemeral volume controller to create the persistentvolumeclaim|first consumer) [^,]*|PersistentVolumeClaim had no [^,]*|PersistentVolume had no name|VolumeBindingMode not set for StorageClass [^,]*|CSI driver \S+ is not installed[^,]*|\S+ CSI driver is not installed on the node)`,
		`see kubectl describe of the pod's PersistentVolumeClaims`),
	text(Pod, "ResourceClaim", `(?:cannot allocate all claims|resourceclaim (?:in use|not available[^,]*|must be reallocated)|resource ?claim "?[^"\s]*"? (?:not found|is being deleted)[^,]*|waiting for (?:dynamic )?resource claim[^,]*|pod "?[^"]*"? ?resource ?claims?[^,]*|device class \S+ does not exist|node allocatable resource claim [^,]*|claim \S+: [^,]*|pod level (?:request|limit) for [^,]*|deallocation (?:and deletion )?of (?:PodGroup )?ResourceClaims? completed|could not find[^,]*ResourceClaim[^,]*)`,
		`see kubectl describe of the pod's ResourceClaims`),
	text(Pod, "PodGroup", `(?:waiting for pods's pod group "[^"]*" to appear in scheduling queue[^,]*|waiting for minCount pods from a gang to appear in scheduling queue|pod group is waiting for preemption to complete|no feasible placements found|minCount \(\d+\) cannot be satisfied: \d+ scheduled, \d+ remaining|waiting for composite pod group "[^"]*" tree to meet quorum|failed to build hierarchy snapshot: [^,]*|workload aware preemption [^,]*|default preemption plugin is not registered[^,]*)`,
		`as many pods of its group have to wait or run as the group's minCount says`),
	text(Pod, "SchedulingGated", `waiting for scheduling gates: .*|Scheduling is blocked due to non-empty scheduling gates`, `whoever set the gates has to remove them from spec.schedulingGates`),
	text(Pod, "Preempting", `waiting for the preemption for this (?:pod|pod group) to be finished`, `the pods that it preempts have to end`),
	text(Pod, "KubeletTooOld", `Pod has a restartable init container and the SidecarContainers feature is disabled`, `enable the feature`),
	text(Pod, "InvalidRequest", `(?:pod has volume manager[^,]*|parsing pod: .*)`, `correct the pod`),
	text(Pod, "NoNodes", `no nodes available to schedule pods`, `add a node`),
	text(Pod, "SchedulerError", `(?:running|plugin|binding rejected|nodeinfos? |Post |Operation cannot|pods? "[^"]*" (?:not found|is forbidden)|error while running|bind pod|no longer).*`, `see the scheduler's log; it is tried again`),
}

// preemptionTexts are those of PostFilter, anywhere in what it says.
var preemptionTexts = []known{
	anywhere("PreemptionNever", `not eligible (?:for slot preemption: preemptionPolicy is Never|due to preemptionPolicy=Never)`),
	anywhere("NoLowerPriority", `no pods of lower priority hold slots that would help`),
	anywhere("TriedAgain", `slots that would do are free by now, so no pod is preempted; the pod is tried again`),
	anywhere("Preempting", `not eligible due to (?:a terminating pod on the nominated node|an ongoing preemption|preemption in progress)`),
	anywhere("NotEligible", `not eligible due to (?:placement-based pod group scheduling limitation|workload aware preemption enabled)`),
	anywhere("NotEligible", `pod group for pod not found`),
}

func anywhere(reason, pattern string) known {
	return known{regexp.MustCompile(pattern), reason, Preemption, ""}
}
