package message

import "regexp"

// kubecriText is how kubecri begins what it says of a container that it does not start.
var kubecriText = regexp.MustCompile(`kubecri does not start container "([^"]*)" of pod \S+ without (?:its devices|its slots [^:]*): `)

// slotName is a slot in a text.
const slotName = `slot (?P<slot>\S+)`

// kubecriTexts are why kubecri does not start a container: kubecri/admit, kubecri/claims,
// kubecri/inject, kubecri/agent, kubecri/soplugins.
var kubecriTexts = []known{
	text(Slots, "ConfigurationGone", `(?:Instance \S+ cannot be reached from this node: )?device of Instance \S+: there is no Configuration "(?P<configuration>[^"]+)".*`,
		`create Configuration $configuration again, or delete the pod`),
	text(Slots, "SlotClaimed", slotName+` is claimed by .*`, `that container has to end; the kubelet tries again`),
	text(Slots, "SlotClaimed", slotName+` is used by (?:container "[^"]*" of )?(?P<user>.+) on this node.*`, `$user has to end; the kubelet tries again`),
	text(Slots, "NotAssigned", `it requests (?P<resource>.*?), and the scheduler has assigned it no (?:slots|devices): .*`,
		`create the pod again without spec.nodeName, for Kubeslot's scheduler`),
	text(Slots, "AllocatedByDRA",
		`it requests (?P<resource>.*?), which DRA gives \(allocatedByDRA\): request it with a ResourceClaim of `+
			`DeviceClass (?P<class>\S+)`,
		`request $resource with a ResourceClaim of DeviceClass $class`),
	text(Slots, "NotSigned", `its assignment was not signed by a scheduler that this node trusts: .*`,
		`the scheduler's --assignment-signing-key-file has to fit the node's --assignment-public-keys-file; then delete the pod`),
	text(Slots, "BadAssignment", `its assignment cannot be used: .*`, `delete the pod: its next one is assigned anew`),
	text(Slots, "BadAssignment", slotName+` is assigned (?:twice to the container|for \S+, but its Instance is of Configuration \S+)`, `delete the pod: its next one is assigned anew`),
	text(Slots, "BadAssignment", `\d+ slots of `+resource+` are assigned, and the container requests \d+.*`, `delete the pod: its next one is assigned anew`),
	text(Slots, "ConfigurationGone", slotName+` is of Configuration (?P<configuration>\S+), which does not exist or is being deleted.*`,
		`create Configuration $configuration again, or delete the pod`),
	text(Slots, "NameTaken", slotName+` is of Configuration (?P<configuration>\S+), which has no devices: Configuration (?P<older>\S+) is older, and has or may have an Instance of this name`,
		`give Configuration $configuration another name, and delete the pod`),
	text(Slots, "NameTaken", slotName+` is of an Instance whose name Configuration (?P<older>\S+) has, which is older.*`, `delete the pod: its next one is assigned anew`),
	text(Slots, "NameTaken", `(?:Instance \S+ cannot be reached from this node: )?device of Instance (?P<instance>\S+): Configuration (?P<older>\S+) has (?:this name|or may have an Instance with the name \S+).*`,
		`one of the Configurations needs another name: kubectl describe configurations -A says which; then delete the pod`),
	text(Slots, "NamespaceNotAllowed", slotName+` is of Configuration (?P<configuration>\S+), whose spec\.allowedNamespaces does not allow namespace (?P<namespace>[^:\s]+).*`,
		`add the namespace $namespace to spec.allowedNamespaces of Configuration $configuration, or delete the pod`),
	text(Slots, "ClaimFailed", slotName+` cannot be claimed: whether pods of namespace .*`,
		`kubecri has to be allowed to get namespaces, and spec.allowedNamespaces has to be correct; the kubelet tries again`),
	text(Slots, "CapacityLowered", slotName+` does not exist: Configuration (?P<configuration>\S+) has capacity \d+.*`,
		`delete the pod: its next one gets another slot; or raise the capacity again`),
	text(Slots, "DeviceAway", `Instance (?P<instance>\S+) cannot be reached from this node: .*`,
		`the device has to come back to this node, or the pod has to be deleted to get another; the kubelet tries again`),
	text(Slots, "DeviceAway", `device of Instance (?P<instance>[^\s:]+): .*`,
		`the device has to come back to this node, or the pod has to be deleted to get another; the kubelet tries again`),
	text(Slots, "KubecriStarting", `(?:the runtime has not yet said which containers use slots|the API server has not yet said which Configurations and SlotClaims there are|slots cannot be claimed while the API server has no Node object of this node|slot \S+ is not claimed yet).*`,
		`nothing: the kubelet tries again; if it stays, look at kubecri's log on the node`),
	text(Slots, "ClaimFailed", slotName+` of container "[^"]*" of pod \S+ is not claimed: .* has to be in the checkpoint (?P<file>[^\s:]+)\. .*`,
		`make $file writable on the node; the kubelet tries again`),
	text(Slots, "ClaimFailed", `(?:create SlotClaim|delete SlotClaim|look who has SlotClaim|replace SlotClaim|wait for another change to the claim of slot) .*`,
		`kubecri has to reach the API server and to be allowed to write SlotClaims: kubecri check on the node`),
	text(Plugins, "NoPlugin", `it requests .*? of which a device plugin of this node gives out devices, and the scheduler has assigned it none.*`,
		`start the scheduler with its half of the plugin (--devschedpath), and create the pod again`),
	text(Plugins, "NoPlugin", `.*no device plugin of this node answers for it.*; not loaded on this node: .*`, `correct the plugin's file on the node (kubecri check says what is wrong with it) and restart kubecri`),
	text(Plugins, "NoPlugin", `.*no device plugin of this node answers for it.*; not here now: .*`,
		`start the plugin on the node; the kubelet tries again`),
	text(Plugins, "NoPlugin", `.*no device plugin of this node answers for it.*`, `load the device plugin on the node (--cridevices), or delete the pod`),
	text(Plugins, "PluginFault", `.*device plugin "(?P<plugin>[^"]*)" cannot be asked now.*`, `look at kubecri's log on the node; the kubelet tries again`),
	text(Plugins, "PluginFault", `.*(?:invalid result|not called): .*|device plugin "(?P<plugin>[^"]*)".*`, `look at kubecri's log on the node; the kubelet tries again`),
	text(Slots, "DevicesConflict", `.* and .* both (?:set the variable .*|want the path .*)`, `give the container devices of only one of them`),
	text(Slots, "DevicesConflict", `the properties of its \d+ devices take \d+ bytes .*`, `request fewer slots in one container`),
	text(Slots, "DevicesConflict", `.* puts the device node \S+ at \S+, and a pod with hostUsers: false .*`, `run the pod with hostUsers: true`),
	text(Slots, "BadDevice", `.* (?:has .* with path .*, which is not an absolute path|wants permissions "[^"]*" on \S+: want a subset of rwm).*`, `correct its discovery handler`),
	text(Slots, "BadDevice", `(?:.*: )?(?:mount of|device node) "[^"]*": .*`, `correct its discovery handler`),
	text(Slots, "BadDevice", `encode .*`, `report this`),
	text(Plugins, "CDIUnusable", `.* gives CDI device "[^"]*", which the runtime would leave out without a word: .*`,
		`update the container runtime, or run kubecri between it and the kubelet; the kubelet tries again`),
	text(Slots, "CDIUnusable", `(?:the container runtime (?:is not known to have CDI on|does not say whether it has CDI on)|`+
		`kubecri writes no CDI specs here).*`, `turn the runtime's CDI on, with kubecri's --cdi-dir among its directories; `+
		`the kubelet tries again`),
}

// kubeletTexts are the kubelet's own words, with its message behind them.
var kubeletTexts = []known{
	text(Slots, "NotEnoughAdvertised", `OutOf(?P<resource>akri\.sh/\S+): .*`,
		`delete the pod: its next one is scheduled anew. Pods of another scheduler count on the node too`),
	text(Nodes, "NotEnoughOnNode", `OutOf(?P<resource>[^\s:]+): .*`, `delete the pod: its next one is scheduled anew`),
	text(Slots, "UnexpectedAdmissionError", `UnexpectedAdmissionError: .*kubecri gives out no .*`,
		`delete the pod: its next one is scheduled anew. A slot may be taken elsewhere after a pod is bound, which device-plugin mode cannot avoid`),
	text(Pod, "UnexpectedAdmissionError", `UnexpectedAdmissionError: .*`, `delete the pod: its next one is scheduled anew`),
	text(Nodes, "NodeNotSelected", `(?:NodeAffinity|NodeName|NodePorts|NodeUnschedulable|TaintToleration|PodOSSelectorNodeLabelDoesNotMatch|PodOSNotSupported|SupplementalGroupsPolicyNotSupported|PodFeatureUnsupported|PodLevelResourcesNotSupported|AppArmor|InvalidNodeInfo|UnknownReason|InitContainerRestartPolicyForbidden|UnexpectedPredicateFailureType): .*`,
		`delete the pod: its next one is scheduled anew`),
	text(Nodes, "Evicted", `Evicted: .*`, `the node has to have more of what ran short; the pod's controller makes another`),
	text(Nodes, "NodeShutdown", `(?:NodeShutdown|Terminated): .*`, `the node has to come back; the pod's controller makes another`),
	text(Nodes, "NodeLost", `NodeLost: .*`, `the node has to come back`),
	text(Pod, "Preempted", `Preempting: .*|Preempted: .*`, `the pod's controller makes another`),
	text(Pod, "DeadlineExceeded", `DeadlineExceeded: .*`, `a longer activeDeadlineSeconds`),
	text(Pod, "Image", `(?:ImagePullBackOff|ErrImagePull|ErrImageNeverPull|InvalidImageName|ImageInspectError|ErrImageInspect|RegistryUnavailable|SignatureValidationFailed): .*`,
		`correct the image's name, or its imagePullSecrets`),
	text(Pod, "ContainerConfig", `(?:CreateContainerConfigError|PreCreateHookError|PreStartHookError|PostStartHookError): .*`, `create the ConfigMap or Secret that is missing, or correct the container`),
	text(Pod, "CrashLoop", `CrashLoopBackOff: .*`, `see kubectl logs --previous`),
	text(Nodes, "KubecriAway", `CreateContainerError: .*required plugins? "(?P<plugin>[^"]*)" not present.*`,
		`the NRI plugin $plugin, which is kubecri's (--nri-plugin-name) or one that the pod requires, has to run on the node: kubectl kubeslot doctor; the kubelet tries again`),
	text(Pod, "RunContainer", `(?:RunContainerError|CreateContainerError|ContainerCannotRun|StartError): .*`, `see the message; the kubelet tries again`),
	text(Pod, "Sandbox", `(?:CreatePodSandboxError|ConfigPodSandboxError|KillPodSandboxError|KillContainerError|RemoveContainerError|ResizePodInPlaceError): .*`, `see kubectl describe pod`),
	text(Pod, "Starting", `(?:ContainerCreating|PodInitializing): .*`, ``),
}
