// Package monitoring runs the alerts and dashboards of deploy/monitoring: promtool's tests
// of each rule, and then a real Prometheus that reads the real metrics of a cluster's
// components, in which each alert is made to fire and each panel is queried.
package monitoring
