// Package cdi is what kubecri does with the Container Device Interface
// (https://github.com/cncf-tags/container-device-interface).
package cdi
