package main

import (
	_ "embed"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

//go:embed sensors.yaml
var sensors string

// devicePromise is how soon a device that is plugged in is an Instance, and how soon no
// pod is given one that is unplugged.
const devicePromise = time.Second

// hotplug has a pod wait for a device, plugs it in, and unplugs it. The device is a
// macvtap interface: a real one of the kernel's, which only its node has in /sys.
func (s *show) hotplug() error {
	const node, name = "node-b", "sensor0"
	title("A pod waits for a device that is not plugged in yet (test/demo/sensors.yaml)")
	fmt.Print(sensors)
	if err := s.apply("sensors.yaml", sensors); err != nil {
		return err
	}
	if err := s.await("the scheduler's reason for reader", s.refused("reader")); err != nil {
		return err
	}
	if err := s.print(s.kubectl("kubeslot", "pod", "reader")); err != nil {
		return err
	}

	title("Plug it in on " + node + ": ip link add " + name + " link eth0 type macvtap")
	begin := time.Now()
	tap, err := s.cluster.AddMacvtap(node, name)
	if err != nil {
		return err
	}
	if err := s.await("its Instance to be there", s.instancesOf("sensors", 1)); err != nil {
		return err
	}
	found := time.Since(begin)
	if err := s.await("pod reader to run", s.running("reader")); err != nil {
		return err
	}
	fmt.Printf("an Instance %.2f s after it was plugged in, and the pod runs after %.2f s\n", found.Seconds(), time.Since(begin).Seconds())
	for _, args := range [][]string{
		{"kubeslot", "instances"}, {"kubeslot", "pod", "reader"}, {"exec", "reader", "--", "/app", "ls", tap.Device},
	} {
		if err := s.print(s.kubectl(args...)); err != nil {
			return err
		}
	}
	if _, err := s.kubectl("exec", "reader", "--", "/app", "read", tap.Device, "0"); err != nil {
		return fmt.Errorf("the pod cannot open its device: %w", err)
	}
	fmt.Println("  the pod opens", tap.Device)

	title("Unplug it")
	begin = time.Now()
	if err := s.cluster.RemoveMacvtap(node, name); err != nil {
		return err
	}
	if err := s.await(node+" to report it no longer", s.unreported("sensors")); err != nil {
		return err
	}
	gone := time.Since(begin)
	// The Instance stays for as long as the pod uses it.
	if err := s.await("its Instance to have no nodes", s.instancesOf("sensors", 0)); err != nil {
		return err
	}
	if err := s.await("the pod's Event", s.told("reader", "DeviceGone")); err != nil {
		return err
	}
	if err := s.print(s.kubectl("get", "events", "--field-selector", "involvedObject.name=reader,reason=DeviceGone")); err != nil {
		return err
	}
	if found > devicePromise || gone > devicePromise {
		return fmt.Errorf("%.2f s until there was an Instance, %.2f s until no node had it, and %v was promised", found.Seconds(), gone.Seconds(), devicePromise)
	}
	return nil
}

// instancesOf reports whether the Configuration has as many Instances that a node reaches.
func (s *show) instancesOf(configuration string, want int) func() (bool, error) {
	return func() (bool, error) {
		list, err := s.akri.AkriV0().Instances(namespace).List(s.ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		count := 0
		for _, in := range list.Items {
			if in.Spec.ConfigurationName == configuration && len(in.Spec.Nodes) > 0 {
				count++
			}
		}
		return count == want, nil
	}
}

// unreported reports whether no node sees a device of the Configuration.
func (s *show) unreported(configuration string) func() (bool, error) {
	return func() (bool, error) {
		list, err := s.akri.KubeslotV1alpha1().DeviceSlices().List(s.ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, slice := range list.Items {
			for _, d := range slice.Spec.Devices {
				if d.Configuration.Name == configuration && !d.Gone {
					return false, nil
				}
			}
		}
		return true, nil
	}
}

// told reports whether there is an event of the pod for the reason.
func (s *show) told(pod, reason string) func() (bool, error) {
	return func() (bool, error) {
		events, err := s.kube.CoreV1().Events(namespace).List(s.ctx, metav1.ListOptions{
			FieldSelector: "reason=" + reason + ",involvedObject.name=" + pod})
		return err == nil && len(events.Items) > 0, err
	}
}
