// Package v1alpha1 is the protocol of plugins that are processes of their own, generated from
// plugin.proto: KubeDevice's interfaces in packages device and devicescheduler as gRPC services.
package v1alpha1

// Version is the protocol's name in registration.PluginInfo.
const Version = "v1alpha1"
