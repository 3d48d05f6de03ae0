package dra

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery/unixsocket"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// startRetry is between two looks at whether the driver is needed, and at its sockets, and attempts to make them: the
// kubelet's directories may not be there yet, and a kubecri that is being replaced still serves them.
const startRetry = time.Second

// needed reports whether there is anything for a DRA driver to do: DRA gives the slots of a Configuration, or is to,
// or ResourceClaims hold slots here. A driver that has served here is needed, too: the kubelet has it unprepare what
// it may have prepared, whatever is left of that, and until it is answered no pod of such a claim ends.
func (d *Driver) needed() bool {
	_, err := os.Lstat(filepath.Join(d.ownDirectory(), socket))
	all, _ := d.Configurations.Lister().List(labels.Everything()) // from memory
	return err == nil || len(d.Claims.OfResourceClaims()) > 0 ||
		slices.ContainsFunc(all, func(c *akriv0.Configuration) bool { return !c.GivesSlots() })
}

// Run serves the kubelet from when the driver is needed first until ctx is done. The sockets stay then, as
// after a kill: the next process takes their places, and the kubelet registers its driver anew.
func (d *Driver) Run(ctx context.Context) {
	logger := klog.FromContext(ctx).WithName("dra")
	ctx = klog.NewContext(ctx, logger)
	if wait.PollUntilContextCancel(ctx, startRetry, true, func(context.Context) (bool, error) {
		return d.needed(), nil
	}) != nil { // ctx is done
		return
	}
	var running sync.WaitGroup
	defer running.Wait()
	_ = d.describeAgain(ctx) // before the kubelet is answered; the Injector tries again, and says why
	running.Go(func() { d.releaseLeftovers(ctx) })
	var helper *kubeletplugin.Helper
	failing := false
	_ = wait.PollUntilContextCancel(ctx, startRetry, true, func(context.Context) (bool, error) {
		if helper != nil && d.findable() {
			return false, nil
		}
		helper.Stop() // of nil does nothing
		var err error
		if helper, err = d.start(ctx); err == nil {
			logger.Info("Serving the kubelet as DRA driver", "driver", v1alpha1.DRADriver, "directory",
				d.KubeletDirectory)
		} else if !failing && ctx.Err() == nil { // once an outage
			logger.Error(err, "Cannot serve the kubelet as DRA driver: ResourceClaims are not prepared; trying again",
				"every", startRetry)
		}
		failing = err != nil
		return false, nil
	})
	helper.Stop()
}

// findable reports whether the kubelet finds the driver: somebody may have removed the sockets, as who sets the node up
// anew does.
func (d *Driver) findable() bool {
	_, err := os.Lstat(filepath.Join(d.ownDirectory(), socket))
	_, errRegistry := os.Lstat(filepath.Join(d.registry(), v1alpha1.DRADriver+"-reg.sock"))
	return err == nil && errRegistry == nil
}

// socket is the driver's in its own directory, by kubeletplugin. It stays when the process ends.
const socket = "dra.sock"

func (d *Driver) ownDirectory() string {
	return filepath.Join(d.KubeletDirectory, "plugins", v1alpha1.DRADriver)
}

func (d *Driver) registry() string { return filepath.Join(d.KubeletDirectory, "plugins_registry") }

func (d *Driver) start(ctx context.Context) (*kubeletplugin.Helper, error) {
	own, registry := d.ownDirectory(), d.registry()
	for _, directory := range []string{own, registry} {
		if err := os.MkdirAll(directory, 0o750); err != nil {
			return nil, err
		}
	}
	listen := func(_ context.Context, path string) (net.Listener, error) { return unixsocket.Listen(path) }
	return kubeletplugin.Start(ctx, d,
		kubeletplugin.KubeClient(d.Kube), kubeletplugin.NodeName(d.Node), kubeletplugin.DriverName(v1alpha1.DRADriver),
		kubeletplugin.PluginDataDirectoryPath(own), kubeletplugin.PluginListener(listen),
		kubeletplugin.RegistrarDirectoryPath(registry), kubeletplugin.RegistrarListener(listen),
		kubeletplugin.Serialize(false)) // each claim is locked
}
