// Package systemd has the units that are installed on hosts.
package systemd

import _ "embed"

// Kubecri is kubecri.service.
//
//go:embed kubecri.service
var Kubecri string
