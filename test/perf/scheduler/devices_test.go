package scheduler

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	kubescheduler "k8s.io/kubernetes/pkg/scheduler"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
	"k8s.io/kubernetes/test/utils/ktesting"
	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/types/akri/client/clientset/versioned"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

const (
	crds      = "../../../deploy/crds"
	namespace = metav1.NamespaceDefault // of our Configuration and its Instances
	writers   = 16                      // that create objects side by side
)

// prepare returns the hook that makes the devices once all nodes are there.
func (r run) prepare(m *meter) perf.NodeUpdateFn {
	return func(tCtx ktesting.TContext, scheduler *kubescheduler.Scheduler, _ *perf.Workload, nodes *v1.NodeList) error {
		if len(nodes.Items) < r.nodes {
			return nil // the other kind of nodes comes next
		}
		var reach []string
		for i := range nodes.Items {
			if r.shared || strings.HasPrefix(nodes.Items[i].Name, deviceNodePrefix) {
				reach = append(reach, nodes.Items[i].Name)
			}
		}
		profile := scheduler.Profiles[v1.DefaultSchedulerName]
		switch {
		case r.ours:
			if err := r.createInstances(tCtx, reach); err != nil {
				return err
			}
		case r.dra:
			slices := r.resourceSlices(reach)
			if err := create(len(slices), func(i int) error {
				_, err := tCtx.Client().ResourceV1().ResourceSlices().Create(tCtx, slices[i], metav1.CreateOptions{})
				return err
			}); err != nil {
				return err
			}
			if err := poll(tCtx, func(context.Context) (bool, error) {
				seen, err := profile.SharedDRAManager().ResourceSlices().ListWithDeviceTaintRules()
				return len(seen) == len(slices), err
			}); err != nil {
				return fmt.Errorf("wait until the scheduler has seen the ResourceSlices: %w", err)
			}
		}
		return m.start(profile.SharedInformerFactory().Core().V1().Pods().Informer())
	}
}

func installCRDs(ctx context.Context, config *restclient.Config) error {
	client, err := apiextensions.NewForConfig(config)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(crds, "*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no CRDs in %s: %w", crds, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, crd); err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		definitions := client.ApiextensionsV1().CustomResourceDefinitions()
		if _, err := definitions.Create(ctx, crd, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create CRD %s: %w", crd.Name, err)
		}
		if err := poll(ctx, func(ctx context.Context) (bool, error) {
			live, err := definitions.Get(ctx, crd.Name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			for _, c := range live.Status.Conditions {
				if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
					return true, nil
				}
			}
			return false, nil
		}); err != nil {
			return fmt.Errorf("wait for CRD %s: %w", crd.Name, err)
		}
	}
	return nil
}

// createInstances makes the Configuration and its Instances, all of them free,
// and waits until the scheduler gives out the slots of the one made last.
func (r run) createInstances(tCtx ktesting.TContext, reach []string) error {
	client, err := akriClient(tCtx)
	if err != nil {
		return err
	}
	if _, err := client.AkriV0().Configurations(namespace).Create(tCtx, &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Name: kindName},
		Spec:       akriv0.ConfigurationSpec{DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: "debugEcho"}},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	n, _ := r.instances()
	createOne := func(i int) error {
		_, err := client.AkriV0().Instances(namespace).Create(tCtx, r.instance(i, reach), metav1.CreateOptions{})
		return err
	}
	if err := create(n-1, createOne); err != nil {
		return err
	}
	if err := createOne(n - 1); err != nil {
		return err
	}
	return waitForSlots(tCtx, r.instance(n-1, reach).Name)
}

// instance is the i-th of the run's Instances.
func (r run) instance(i int, reach []string) *akriv0.Instance {
	_, capacity := r.instances()
	in := &akriv0.Instance{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%06x", kindName, i)},
		Spec: akriv0.InstanceSpec{
			ConfigurationName: kindName, Capacity: int32(capacity), Shared: r.shared, Nodes: reach,
			BrokerProperties: map[string]string{"MODEL": "A100", "FAMILY": "GPU", "DRIVER_VERSION": "1.2.3"},
			DeviceUsage:      make(map[string]string, capacity),
		},
	}
	if !r.shared {
		in.Spec.Nodes = reach[i%len(reach) : i%len(reach)+1]
	}
	for index := range capacity {
		in.Spec.DeviceUsage[slot.Name{Instance: in.Name, Index: index}.String()] = ""
	}
	return in
}

// waitForSlots schedules a pod onto the Instance and removes it again.
func waitForSlots(tCtx ktesting.TContext, instance string) error {
	probe := arm{resource: v1.ResourceName(assignment.ResourcePrefix + instance)}.pod(1)
	pods := tCtx.Client().CoreV1().Pods(namespace)
	probe, err := pods.Create(tCtx, probe, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := poll(tCtx, func(ctx context.Context) (bool, error) {
		live, err := pods.Get(ctx, probe.Name, metav1.GetOptions{})
		return err == nil && live.Spec.NodeName != "", err
	}); err != nil {
		return fmt.Errorf("wait until the scheduler knows Instance %s: %w", instance, err)
	}
	now := int64(0)
	return pods.Delete(tCtx, probe.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
}

func akriClient(tCtx ktesting.TContext) (versioned.Interface, error) {
	config := restclient.CopyConfig(tCtx.RESTConfig())
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	return versioned.NewForConfig(config)
}

// resourceSlices are as many devices as the run has slots.
func (r run) resourceSlices(reach []string) []*resourceapi.ResourceSlice {
	newSlice := func(name string, devices int) *resourceapi.ResourceSlice {
		s := &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: driverName, Pool: resourceapi.ResourcePool{Name: name, ResourceSliceCount: 1},
			},
		}
		model := "A100"
		for i := range devices {
			s.Spec.Devices = append(s.Spec.Devices, resourceapi.Device{
				Name:       fmt.Sprintf("instance-%d", i),
				Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"model": {StringValue: &model}},
			})
		}
		return s
	}
	var slices []*resourceapi.ResourceSlice
	if r.shared {
		const perSlice = 100 // of the 128 that the API allows
		all := true
		for i := range r.nodes * r.slots / perSlice {
			s := newSlice(fmt.Sprintf("shared-%d", i), perSlice)
			s.Spec.AllNodes = &all
			slices = append(slices, s)
		}
		return slices
	}
	for _, node := range reach {
		s := newSlice(node, r.slots)
		s.Spec.NodeName = &node
		slices = append(slices, s)
	}
	return slices
}

// create calls one for 0 to n-1, several at a time, and returns an error of them.
func create(n int, one func(int) error) error {
	errs := make([]error, n)
	workqueue.ParallelizeUntil(context.Background(), writers, n, func(i int) { errs[i] = one(i) })
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("create object %d of %d: %w", i+1, n, err)
		}
	}
	return nil
}

// poll asks until done, which a hanging scheduler never is.
func poll(ctx context.Context, done wait.ConditionWithContextFunc) error {
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 10*time.Minute, true, done)
}
