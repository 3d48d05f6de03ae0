// Package kubedeviceapi holds the tests of the packages below pkg, which are
// KubeDevice-API's by name and Kubeslot's by content. See README.md.
package kubedeviceapi
