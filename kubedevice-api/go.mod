// KubeDevice-API's packages, as aliases of Kubeslot's: see README.md.
module github.com/Microsoft/KubeDevice-API

go 1.26.8

require (
	github.com/kubeslot/kubeslot/types v0.2.0
	github.com/spf13/pflag v1.0.10
	k8s.io/klog/v2 v2.140.0
)

require github.com/go-logr/logr v1.4.4 // indirect

replace github.com/kubeslot/kubeslot/types => ../types
