// Package config is the configuration of our scheduler plugins, as it stands in
// a KubeSchedulerConfiguration's pluginConfig:
//
//	pluginConfig:
//	- name: ConfigurationResources
//	  args:
//	    apiVersion: kubescheduler.config.k8s.io/v1
//	    kind: ConfigurationResourcesArgs
//	    strategy: Pack
//
// +k8s:deepcopy-gen=package
package config
