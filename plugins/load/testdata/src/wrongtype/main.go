// A plugin whose factory has another type.
package main

// CreateDeviceSchedulerPlugin should return a plugin.
func CreateDeviceSchedulerPlugin() string { return "plugin" }

func main() {}
