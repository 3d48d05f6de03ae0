// The definitions of ServiceMonitor and PrometheusRule are in this module's files; nothing
// of it is built.
module github.com/kubeslot/kubeslot/test/cluster/upstream/prometheus-operator

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.94.1
