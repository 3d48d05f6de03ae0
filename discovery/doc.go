// Package discovery is what finds devices: the Handler interface, and the
// Device values that handlers report. A handler knows its protocol and nothing
// of Kubernetes; kubecri's agent runs it and reports them in DeviceSlices.
package discovery
