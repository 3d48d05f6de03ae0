module example.com/oldplugin

go 1.26.8

require github.com/Microsoft/KubeDevice-API v0.0.0

require (
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/kubeslot/kubeslot/types v0.2.0 // indirect
	k8s.io/klog/v2 v2.140.0 // indirect
)

replace github.com/Microsoft/KubeDevice-API => ../..

replace github.com/kubeslot/kubeslot/types => ../../../types
