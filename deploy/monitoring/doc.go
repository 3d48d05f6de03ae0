// Package monitoring has what shows and watches Kubeslot in Prometheus and Grafana: alert
// rules (rules.yaml) with promtool's tests of them (tests/), four dashboards, and the
// objects of the Prometheus Operator.
//
// Files that are made from others, by `make generate`: dashboards/*.json from the Go
// values here, prometheusrule.yaml from rules.yaml. test/monitoring runs rules and dashboards against a
// real cluster's metrics.
package monitoring
