package scheduler

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubeschedulerv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	configv1 "k8s.io/kubernetes/pkg/scheduler/apis/config/v1"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/kubeslot/kubeslot/kube-scheduler/binding"
	"github.com/kubeslot/kubeslot/kube-scheduler/config"
	"github.com/kubeslot/kubeslot/kube-scheduler/configurationresources"
	"github.com/kubeslot/kubeslot/kube-scheduler/defaults"
	"github.com/kubeslot/kubeslot/kube-scheduler/deviceplugins"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// kindName is the one kind of device, under which each arm's pods ask for it.
const kindName = "cam"

// arm is a way to give devices to pods.
type arm struct {
	name string
	// resource is the extended resource that pods request; "" with DRA claims.
	resource v1.ResourceName
	// onNode: nodes report the resource in their status.
	onNode bool
	// ours: DeviceSlices, and our scheduler.
	ours bool
	// strict: our scheduler claims the slots before it binds.
	strict bool
	// signed: our scheduler signs what it assigns.
	signed bool
	// dra: ResourceSlices and a DeviceClass.
	dra bool
	// consumable: DRA's devices are as many as ours, each for as many claims as ours has slots.
	consumable bool
}

var arms = []arm{
	{name: "plain", resource: "example.com/" + kindName, onNode: true},
	{name: "ours", resource: assignment.ResourcePrefix + kindName, ours: true},
	{name: "strict", resource: assignment.ResourcePrefix + kindName, ours: true, strict: true},
	{name: "signed", resource: assignment.ResourcePrefix + kindName, ours: true, signed: true},
	{name: "dra-extended", resource: "example.com/" + kindName, dra: true},
	{name: "dra-claim", dra: true},
	{name: "dra-consumable", dra: true, consumable: true},
}

// install makes the arm's plugins the default ones of the process.
func (a arm) install() {
	if a.ours {
		defaults.Install()
		return
	}
	scheme.Scheme.AddTypeDefaultingFunc(&kubeschedulerv1.KubeSchedulerConfiguration{}, func(obj any) {
		configv1.SetObjectDefaults_KubeSchedulerConfiguration(obj.(*kubeschedulerv1.KubeSchedulerConfiguration))
	})
}

// registry returns the plugins that upstream lacks. The CRDs are there before
// the plugin starts, as in a cluster.
func (a arm) registry() frameworkruntime.Registry {
	if !a.ours {
		return nil
	}
	o := &binding.Options{}
	if a.signed {
		o.SigningKeyFile = *signingKey
	}
	factory := &configurationresources.Factory{Options: o}
	return frameworkruntime.Registry{
		configurationresources.Name: func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			if err := installCRDs(ctx, handle.KubeConfig()); err != nil {
				return nil, err
			}
			if a.strict {
				args.(*config.ConfigurationResourcesArgs).ClaimMode = config.ClaimByScheduler
			}
			plugin, err := factory.New(ctx, args, handle)
			if err == nil {
				factory.Lead() // as kube-scheduler does: there is no other
			}
			return plugin, err
		},
		deviceplugins.Name: deviceplugins.NewFactory(&deviceplugins.Options{}, o),
	}
}

// pod is a pod that asks for n devices.
func (a arm) pod(n int) *v1.Pod {
	pod := &v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "registry.k8s.io/pause:3.10.1"}}},
	}
	resources := &pod.Spec.Containers[0].Resources
	if a.resource != "" {
		resources.Limits = v1.ResourceList{a.resource: *resource.NewQuantity(int64(n), resource.DecimalSI)}
		resources.Requests = resources.Limits
		return pod
	}
	template := claimTemplateName(n)
	pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: kindName, ResourceClaimTemplateName: &template}}
	resources.Claims = []v1.ResourceClaim{{Name: kindName}}
	return pod
}

func claimTemplateName(n int) string { return fmt.Sprintf("%s-%d", kindName, n) }
