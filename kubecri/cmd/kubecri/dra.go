package main

import (
	"context"
	"path/filepath"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/dra"
)

// addDRA adds the DRA driver, which is the same in each mode.
func (n *node) addDRA(o *options) error {
	driver, err := dra.New(dra.Config{
		Node: o.nodeName, Kube: n.cluster.Kube, Claims: n.claims, Configurations: n.cluster.Configurations,
		Slices: n.cluster.Slices, Pods: n.cluster.Pods,
		Device: func(ctx context.Context, instance string) (discovery.Device, error) {
			ctx, cancel := context.WithTimeout(ctx, o.deviceTimeout)
			defer cancel()
			return n.device(ctx, instance)
		},
		Seen: n.agent, CDI: n.cdi, Runtime: n.cri,
		KubeletDirectory: filepath.Dir(filepath.Clean(o.devicePlugin.directory)), Resync: o.claimResync,
	})
	if err != nil {
		return err
	}
	n.works = append(n.works, driver.Run)
	return nil
}
