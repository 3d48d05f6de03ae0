package monitoring

// Schedulers and controllers that do not lead report the same as the one that does, so that
// what they count is never added up: max by its labels comes first.

// Dashboards are all of them.
func Dashboards() []Dashboard { return []Dashboard{fleet(), configuration(), node(), scheduler()} }

const (
	slotsByState   = `max by (configuration, state) (kubeslot_scheduler_slots)`
	waitingPods    = `max by (configuration, reason) (kubeslot_scheduler_waiting_pods)`
	oldestPods     = `kubeslot_scheduler_oldest_waiting_pod_seconds`
	instanceCounts = `max by (configuration, is_shared) (akri_instance_count)`
)

func stat(title, expr string, unit Unit, alarm float64) Panel {
	return Panel{Title: title, Kind: Number, Unit: unit, Alarm: alarm, Queries: []Query{{Expr: expr}}}
}

func graph(title string, unit Unit, queries ...Query) Panel {
	return Panel{Title: title, Kind: Graph, Unit: unit, Queries: queries}
}

func stacked(title string, unit Unit, queries ...Query) Panel {
	p := graph(title, unit, queries...)
	p.Stack = true
	return p
}

func (p Panel) saying(description string) Panel {
	p.Description = description
	return p
}

// quiet is a query that has series only when something is wrong, or in use.
func quiet(expr, legend string) Query { return Query{Expr: expr, Legend: legend, Quiet: true} }

func fleet() Dashboard {
	return Dashboard{Name: "fleet", Title: "Kubeslot / Fleet", Description: "All Configurations and nodes at a glance.", Rows: []Row{
		{Title: "Now", Panels: []Panel{
			stat("Slots", `sum(`+slotsByState+`)`, Count, 0),
			stat("Free", `sum(max by (configuration) (kubeslot_scheduler_slots{state="free"}))`, Count, 0),
			stat("Held", `sum(max by (configuration) (kubeslot_scheduler_slots{state="held"}))`, Count, 0),
			stat("Pods waiting", `sum(`+waitingPods+`) or vector(0)`, Count, 1),
			stat("Oldest wait", `max(`+oldestPods+`) or vector(0)`, Seconds, 900),
			stat("Devices", `sum(`+instanceCounts+`)`, Count, 0),
			stat("Nodes with kubecri", `sum(up{job="kubecri"})`, Count, 0),
			stat("Alerts", `count(ALERTS{alertname=~"Kubeslot.*", alertstate="firing"}) or vector(0)`, Count, 1),
		}},
		{Title: "Slots and pods", Panels: []Panel{
			stacked("Slots by state", Count, Query{Expr: `sum by (state) (` + slotsByState + `)`, Legend: "{{state}}"}).
				saying("free; held by a pod, a ResourceClaim or, in device-plugin mode, a kubelet; " +
					"claimed: by a node, for no known pod; conflicting: held by two pods; " +
					"nominated: kept for a pod that preempted others"),
			stacked("Waiting pods by reason", Count, quiet(`sum by (reason) (`+waitingPods+`)`, "{{reason}}")).
				saying("Why the pods that request slots were not scheduled when they were tried last: docs/monitoring.md has the reasons."),
		}},
		{Title: "Configurations and nodes", Panels: []Panel{
			{Title: "Configurations", Kind: Table, Unit: Count, Queries: []Query{
				{Expr: `max by (configuration) (kubeslot_scheduler_slots{state="free"})`, Legend: "free"},
				{Expr: `max by (configuration) (kubeslot_scheduler_slots{state="held"})`, Legend: "held"},
				quiet(`sum by (configuration) (`+waitingPods+`)`, "waiting pods"),
				{Expr: `sum by (configuration) (` + instanceCounts + `)`, Legend: "devices"},
				quiet(`sum by (configuration) (max by (configuration, reason) (kubeslot_controller_configuration_problems))`, "problems"),
			}},
			{Title: "Nodes", Kind: Table, Unit: Count, Queries: []Query{
				{Expr: `sum by (node) (kubecri_advertised_slots)`, Legend: "slots in reach"},
				{Expr: `sum by (node) (kubecri_used_slots)`, Legend: "slots used"},
				{Expr: `sum by (node) (kubecri_claims_release_pending)`, Legend: "to be released"},
				{Expr: `min by (node) (up{job="kubecri"})`, Legend: "up"},
			}},
		}},
		{Title: "What goes wrong", Panels: []Panel{
			graph("Problems of Configurations", Count, quiet(`sum by (configuration, reason) (max by (configuration, reason) (kubeslot_controller_configuration_problems))`, "{{configuration}} {{reason}}")).
				saying("Nodes that have the problem."),
			graph("Containers with devices", PerSecond, Query{Expr: `sum by (result) (rate(kubecri_injections_total[$__rate_interval]))`, Legend: "{{result}}"}),
			graph("Nodes without kubecri, reports that do not count", Count,
				Query{Expr: `max(kubeslot_controller_nodes_without_kubecri)`, Legend: "nodes without kubecri"},
				Query{Expr: `max by (what) (kubeslot_scheduler_ignored)`, Legend: "{{what}} that do not count"}),
		}},
		{Title: "Brokers", Panels: []Panel{
			graph("Broker pods", Count, quiet(`sum by (configuration) (max by (configuration, node) (akri_broker_pod_count))`, "{{configuration}}")),
			graph("Brokers created, deleted, refused", PerSecond,
				Query{Expr: `sum by (kind) (rate(kubeslot_controller_brokers_created_total[$__rate_interval]))`, Legend: "{{kind}} created"},
				Query{Expr: `sum by (kind) (rate(kubeslot_controller_brokers_deleted_total[$__rate_interval]))`, Legend: "{{kind}} deleted"},
				Query{Expr: `sum by (kind) (rate(kubeslot_controller_brokers_refused_total[$__rate_interval]))`, Legend: "{{kind}} refused"}),
			graph("Brokers and Instances beyond limits", Count,
				quiet(`max by (configuration) (kubeslot_controller_brokers_withheld)`, "brokers of {{configuration}}"),
				quiet(`max by (configuration) (kubeslot_controller_instances_withheld)`, "Instances of {{configuration}}")),
			graph("The controller's queues", Count, Query{Expr: `max by (name) (workqueue_depth and on (instance) kubeslot_controller_nodes_without_kubecri)`, Legend: "{{name}}"}),
		}},
	}}
}

func configuration() Dashboard {
	const of = `{configuration=~"$configuration"}`
	state := func(state string) string {
		return `sum(max by (configuration) (kubeslot_scheduler_slots{configuration=~"$configuration", state="` + state + `"}))`
	}
	return Dashboard{Name: "configuration", Title: "Kubeslot / Configuration", Description: "One Configuration: its slots, who waits for them, its devices and nodes.",
		Variable: &Variable{"configuration", "kubeslot_scheduler_slots"}, Rows: []Row{
			{Title: "Now", Panels: []Panel{
				stat("Free", state("free"), Count, 0),
				stat("Held", state("held"), Count, 0),
				stat("Claimed for no pod", state("claimed"), Count, 1),
				stat("Double allocations", state("conflicting"), Count, 1),
				stat("Pods waiting", `sum(max by (configuration, reason) (kubeslot_scheduler_waiting_pods`+of+`)) or vector(0)`, Count, 1),
				stat("Oldest wait", `max(`+oldestPods+of+`) or vector(0)`, Seconds, 900),
			}},
			{Title: "Slots and pods", Panels: []Panel{
				stacked("Slots by state", Count, Query{Expr: `sum by (state) (max by (configuration, state) (kubeslot_scheduler_slots` + of + `))`, Legend: "{{state}}"}),
				stacked("Waiting pods by reason", Count, quiet(`sum by (reason) (max by (configuration, reason) (kubeslot_scheduler_waiting_pods`+of+`))`, "{{reason}}")),
				graph("Oldest waiting pod", Seconds, quiet(`max by (configuration, reason) (`+oldestPods+of+`)`, "{{configuration}} {{reason}}")),
			}},
			{Title: "Nodes", Panels: []Panel{
				graph("Slots used", Count, Query{Expr: `sum by (node) (kubecri_used_slots` + of + `)`, Legend: "{{node}}"}),
				graph("Slots in reach", Count, Query{Expr: `sum by (node) (kubecri_advertised_slots` + of + `)`, Legend: "{{node}}"}).
					saying("A device that several nodes reach counts on each of them."),
				graph("Devices by state", Count, Query{Expr: `sum by (node, state) (kubecri_discovered_devices` + of + `)`, Legend: "{{node}} {{state}}"}),
			}},
			{Title: "Discovery", Panels: []Panel{
				graph("Devices", Count, Query{Expr: `max by (configuration, is_shared) (akri_instance_count` + of + `)`, Legend: "{{configuration}} shared={{is_shared}}"}),
				graph("Time to the first report, 95th percentile", Seconds, Query{Expr: `histogram_quantile(0.95, sum by (le, configuration) (rate(akri_discovery_response_time_bucket` + of + `[$__range])))`, Legend: "{{configuration}}"}),
				graph("Problems", Count, quiet(`max by (configuration, reason) (kubeslot_controller_configuration_problems`+of+`)`, "{{configuration}} {{reason}}")),
				graph("Broker pods", Count, quiet(`max by (configuration, node) (akri_broker_pod_count`+of+`)`, "{{node}}")),
			}},
		}}
}

func node() Dashboard {
	const at = `{node=~"$node"}`
	rate := func(metric, labels string) string {
		return `sum by (` + labels + `) (rate(` + metric + at + `[$__rate_interval]))`
	}
	return Dashboard{Name: "node", Title: "Kubeslot / Node", Description: "kubecri on a node: slots, claims, containers, the container runtime, plugins.",
		Variable: &Variable{"node", "kubecri_claims_held"}, Rows: []Row{
			{Title: "Now", Panels: []Panel{
				stat("kubecri up", `min(up{job="kubecri", node=~"$node"})`, Count, 0),
				stat("Slots used", `sum(kubecri_claims_held`+at+`)`, Count, 0),
				stat("Slots in reach", `sum(kubecri_advertised_slots`+at+`)`, Count, 0),
				stat("To be released", `sum(kubecri_claims_release_pending`+at+`)`, Count, 1),
				stat("Slots lost", `sum(increase(kubecri_slots_lost_total`+at+`[$__range]))`, Count, 1),
				stat("Devices without handler", `sum(kubecri_discovered_devices{node=~"$node", state="unschedulable"})`, Count, 1),
			}},
			{Title: "Slots and containers", Panels: []Panel{
				graph("Slots used", Count, Query{Expr: `sum by (configuration) (kubecri_used_slots` + at + `)`, Legend: "{{configuration}}"}),
				graph("Slots in reach", Count, Query{Expr: `sum by (configuration) (kubecri_advertised_slots` + at + `)`, Legend: "{{configuration}}"}),
				graph("Containers with devices", PerSecond, Query{Expr: rate("kubecri_injections_total", "result"), Legend: "{{result}}"}),
			}},
			{Title: "Claims and devices", Panels: []Panel{
				graph("SlotClaims", PerSecond,
					Query{Expr: rate("kubecri_claims_taken_total", "node"), Legend: "{{node}} created"},
					Query{Expr: rate("kubecri_claims_released_total", "node"), Legend: "{{node}} deleted"}),
				graph("Comparisons that failed", PerSecond,
					Query{Expr: `sum by (node) (rate(kubecri_claim_reconciles_total{node=~"$node", result="error"}[$__rate_interval]))`, Legend: "{{node}} claims"},
					Query{Expr: `sum by (node) (rate(kubecri_runtime_resyncs_total{node=~"$node", result="error"}[$__rate_interval]))`, Legend: "{{node}} runtime"},
					Query{Expr: `sum by (node) (rate(kubecri_advertise_patches_total{node=~"$node", result="error"}[$__rate_interval]))`, Legend: "{{node}} node status"}),
				graph("Devices", Count, Query{Expr: `sum by (configuration, state) (kubecri_discovered_devices` + at + `)`, Legend: "{{configuration}} {{state}}"}),
				graph("Handlers asked", PerSecond, Query{Expr: rate("akri_discovery_response_result", "discovery_handler_name, result"), Legend: "{{discovery_handler_name}} {{result}}"}),
			}},
			{Title: "Container runtime", Panels: []Panel{
				graph("CRI calls, 99th percentile", Seconds, Query{Expr: `histogram_quantile(0.99, sum by (le, method) (rate(kubecri_rpc_duration_seconds_bucket` + at + `[$__rate_interval])))`, Legend: "{{method}}"}).
					saying("In proxy mode: all calls of the kubelet, the runtime's part included."),
				graph("CRI errors", PerSecond, Query{Expr: `sum by (method, code) (rate(kubecri_rpc_errors_total` + at + `[$__rate_interval])) > 0`, Legend: "{{method}} {{code}}", Quiet: true}),
				graph("Memory", Bytes, Query{Expr: `process_resident_memory_bytes{job="kubecri", node=~"$node"}`, Legend: "{{node}}"}),
				graph("CPU", Cores, Query{Expr: `rate(process_cpu_seconds_total{job="kubecri", node=~"$node"}[$__rate_interval])`, Legend: "{{node}}"}),
			}},
			{Title: "Device plugins", Panels: []Panel{
				graph("Plugins that work", Count, quiet(`min by (node, plugin) (kubecri_so_plugin_up`+at+`)`, "{{node}} {{plugin}}")),
				graph("Faults", PerSecond, quiet(rate("kubecri_so_plugin_faults_total", "plugin, method, kind"),
					"{{plugin}} {{method}} {{kind}}")),
				graph("Calls, 99th percentile", Seconds, quiet(`histogram_quantile(0.99, sum by (le, plugin, method) (rate(kubecri_so_plugin_call_duration_seconds_bucket`+at+`[$__rate_interval])))`, "{{plugin}} {{method}}")),
				graph("Files that were not loaded", Count, quiet(`sum by (reason) (kubecri_so_plugin_bad_files`+at+`)`, "{{reason}}")),
			}},
		}}
}

func scheduler() Dashboard {
	quantile := func(q, metric, by string) string {
		return `histogram_quantile(` + q + `, sum by (le, ` + by + `) (rate(` + metric + `_bucket[$__rate_interval])))`
	}
	const ours = ` and on (instance) kubeslot_scheduler_ignored`
	return Dashboard{Name: "scheduler", Title: "Kubeslot / Scheduler", Description: "How long pods wait for devices and why, and how the scheduler does.", Rows: []Row{
		{Title: "Waiting", Panels: []Panel{
			stacked("Waiting pods by reason", Count, quiet(`sum by (reason) (`+waitingPods+`)`, "{{reason}}")),
			graph("Time waited, 95th percentile, by reason", Seconds, Query{Expr: quantile("0.95", "kubeslot_scheduler_pod_waiting_seconds", "reason"), Legend: "{{reason}}"}).
				saying("Of pods that were bound: the time that each spent waiting for the reason."),
			graph("Oldest waiting pod", Seconds, quiet(`max by (configuration, reason) (`+oldestPods+`)`, "{{configuration}} {{reason}}")),
		}},
		{Title: "Assignments", Panels: []Panel{
			graph("Pods that were given slots", PerSecond, Query{Expr: `sum by (result) (rate(kubeslot_scheduler_resolution_duration_seconds_count[$__rate_interval]))`, Legend: "{{result}}"}).
				saying("taken, or short: the slots were gone when they were to be taken."),
			graph("Time to choose slots, 99th percentile", Seconds, Query{Expr: quantile("0.99", "kubeslot_scheduler_resolution_duration_seconds", "result"), Legend: "{{result}}"}),
			graph("Preempted pods", PerSecond, Query{Expr: `sum(rate(kubeslot_scheduler_preempted_pods_total[$__rate_interval]))`, Legend: "preempted"}),
			graph("SlotClaims of claimMode Scheduler", PerSecond,
				Query{Expr: `sum by (result) (rate(kubeslot_scheduler_claims_total[$__rate_interval]))`, Legend: "{{result}}"},
				Query{Expr: `sum by (reason) (rate(kubeslot_scheduler_claims_released_total[$__rate_interval]))`, Legend: "released, {{reason}}"}),
		}},
		{Title: "What goes wrong", Panels: []Panel{
			graph("Slots found assigned twice", Count, Query{Expr: `max(increase(kubeslot_scheduler_ledger_conflicts_total[$__rate_interval]))`, Legend: "slots"}),
			graph("Binds whose answer was lost", Count, Query{Expr: `sum by (result) (increase(kubeslot_scheduler_lost_binds_total[$__rate_interval]))`, Legend: "{{result}}"}),
			graph("Reports that do not count", Count, Query{Expr: `max by (what) (kubeslot_scheduler_ignored)`, Legend: "{{what}}"}),
			graph("Nodes whose annotation cannot be read", Count, Query{Expr: `max(kubeslot_scheduler_device_plugin_unusable_nodes)`, Legend: "nodes"}),
		}},
		{Title: "Device scheduler plugins", Panels: []Panel{
			graph("Loaded", Count, quiet(`max by (plugin) (kubeslot_scheduler_device_plugin_loaded)`, "{{plugin}}")),
			graph("Faults", PerSecond, quiet(`sum by (plugin, method, kind) (rate(kubeslot_scheduler_device_plugin_faults_total[$__rate_interval]))`, "{{plugin}} {{method}} {{kind}}")),
			graph("Calls, 99th percentile", Seconds, quiet(quantile("0.99", "kubeslot_scheduler_device_plugin_call_duration_seconds", "plugin, method"), "{{plugin}} {{method}}")),
			graph("Files that were not loaded", Count, Query{Expr: `max by (reason) (kubeslot_scheduler_device_plugin_bad_files_total)`, Legend: "{{reason}}"}),
		}},
		{Title: "Process", Panels: []Panel{
			graph("Scheduling attempts", PerSecond, Query{Expr: `sum by (result) (rate(scheduler_schedule_attempts_total[$__rate_interval])` + ours + `)`, Legend: "{{result}}"}),
			graph("Pods in the queues", Count, Query{Expr: `sum by (queue) (scheduler_pending_pods` + ours + `)`, Legend: "{{queue}}"}),
			graph("Leads", Count, quiet(`max by (instance) (leader_election_master_status`+ours+`)`, "{{instance}}")),
			graph("Memory", Bytes, Query{Expr: `process_resident_memory_bytes` + ours, Legend: "{{instance}}"}),
		}},
	}}
}
