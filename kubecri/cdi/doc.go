// Package cdi is what kubecri does with the Container Device Interface
// (https://github.com/cncf-tags/container-device-interface): each device that the
// node sees is described in a spec file of its own, named after its Instance and
// written whole or not at all, and containers are given devices by CDI name where
// the runtime has CDI on and reads the directory. Anywhere else, and for a device
// that CDI cannot describe, the request carries the device itself: CDI is never a
// reason for a container not to start.
package cdi
