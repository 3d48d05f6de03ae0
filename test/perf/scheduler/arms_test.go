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

// kindName and otherKind are the kinds of device, under which each arm's pods ask for them.
const (
	kindName  = "cam"
	otherKind = "mic"
)

// arm is a way to give devices to pods.
type arm struct {
	name string
	// prefix and a kind are the extended resource that pods request; "" with DRA claims.
	prefix string
	// onNode: nodes report the resources in their status.
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
	// allocatorDRA: a Configuration with allocator DRA, and our scheduler.
	allocatorDRA bool
}

var arms = []arm{
	{name: "plain", prefix: "example.com/", onNode: true},
	{name: "ours", prefix: assignment.ResourcePrefix, ours: true},
	{name: "strict", prefix: assignment.ResourcePrefix, ours: true, strict: true},
	{name: "signed", prefix: assignment.ResourcePrefix, ours: true, signed: true},
	{name: "dra-extended", prefix: "example.com/", dra: true},
	{name: "dra-claim", dra: true},
	{name: "dra-consumable", dra: true, consumable: true},
	{name: "dra-kubeslot", dra: true, allocatorDRA: true},
}

// install makes the arm's plugins the default ones of the process.
func (a arm) install() {
	if a.ours || a.allocatorDRA {
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
	if !a.ours && !a.allocatorDRA {
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

// amount is n devices of the kind, as the arm's resource.
func (a arm) amount(kind string, n int) v1.ResourceList {
	return v1.ResourceList{v1.ResourceName(a.prefix + kind): *resource.NewQuantity(int64(n), resource.DecimalSI)}
}

// pod is a pod with a container for each kind, which asks for n devices of it. With DRA claims there
// is one kind.
func (a arm) pod(n int, kinds ...string) *v1.Pod {
	pod := &v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"},
	}
	for _, kind := range kinds {
		c := v1.Container{Name: kind, Image: "registry.k8s.io/pause:3.10.1"}
		if a.prefix != "" {
			c.Resources.Limits = a.amount(kind, n)
			c.Resources.Requests = c.Resources.Limits
		} else {
			template := claimTemplateName(n)
			pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: kind, ResourceClaimTemplateName: &template}}
			c.Resources.Claims = []v1.ResourceClaim{{Name: kind}}
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	return pod
}

func claimTemplateName(n int) string { return fmt.Sprintf("%s-%d", kindName, n) }
