package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
)

// CRISocket is what the node's kubelet talks to, without "unix://".
func (c *Cluster) CRISocket(node string) string { return criSocket(c.cfg, c.layout.node(node)) }

// SetNRI has a node's kubecri be a plugin of containerd, or a proxy again. Kubelet
// and kubecri are killed and started anew; containerd and the containers run on.
func (c *Cluster) SetNRI(ctx context.Context, node string, on bool) error {
	c.cfg.NRI, c.cfg.DevicePlugin = without(c.cfg.NRI, node), without(c.cfg.DevicePlugin, node)
	if on {
		c.cfg.NRI = append(c.cfg.NRI, node)
	}
	return c.restartNode(ctx, node)
}

// SetDevicePlugin has a node's kubecri give out slots by device plugins of the kubelet, or
// be a proxy again. Kubelet and kubecri are killed and started anew, as with SetNRI.
func (c *Cluster) SetDevicePlugin(ctx context.Context, node string, on bool) error {
	c.cfg.NRI, c.cfg.DevicePlugin = without(c.cfg.NRI, node), without(c.cfg.DevicePlugin, node)
	if on {
		c.cfg.DevicePlugin = append(c.cfg.DevicePlugin, node)
	}
	return c.restartNode(ctx, node)
}

func without(nodes []string, node string) []string {
	return slices.DeleteFunc(slices.Clone(nodes), func(name string) bool { return name == node })
}

// restartNode restarts a node's kubelet and kubecri by what the configuration says now.
func (c *Cluster) restartNode(ctx context.Context, node string) error {
	i := slices.Index(c.cfg.Nodes, node)
	if i < 0 || c.cfg.Stock {
		return fmt.Errorf("the cluster has no node %q with a kubecri", node)
	}
	if err := c.save(); err != nil {
		return err
	}
	for _, component := range []string{Kubelet, Kubecri} {
		if err := c.Kill(component, node, syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
	}
	n := c.Nodes()[i]
	kubelet, err := c.layout.process(Kubelet, node)
	if err != nil {
		return err
	}
	cg, err := readCgroups()
	if err != nil {
		return err
	}
	if err := writeYAML(n.kubeletConfig(), kubeletConfig(c.cfg, c.layout, n, cg.v2)); err != nil {
		return err
	}
	kubecri, err := kubecriProcess(c.cfg, c.layout, n, c.programs)
	if err != nil {
		return err
	}
	for _, p := range []*process{kubecri, kubelet} {
		if err := c.layout.start(p); err != nil {
			return err
		}
		if err := c.AwaitServing(ctx, p.Component, node); err != nil {
			return err
		}
	}
	return nil
}
