package check

import (
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/kubeslot/kubeslot/kubecri/install/kubeletargs"
	"github.com/kubeslot/kubeslot/version"
)

// Kubelet is what is known of the node's kubelet.
type Kubelet struct {
	// PID is its process id, 0 when none is seen from here.
	PID int
	// Endpoint is where its configuration says that the runtime is, and From what says
	// so.
	Endpoint, From string
	// Changed is a file of its configuration that was changed after it started; ""
	// for none.
	Changed string
	// Other is where kubeadm's instance-config.yaml says that the runtime is, "" for
	// nowhere: by its next upgrade kubeadm tells the kubelet so.
	Other string
	// Err says why the rest is not known.
	Err error
}

// FindKubelet looks for the node's kubelet among the processes.
func FindKubelet(node string) *Kubelet {
	running, err := kubeletargs.Running("/proc")
	if err != nil {
		return &Kubelet{Err: err}
	}
	p, found := kubeletargs.Of(node, running)
	if !found {
		return &Kubelet{}
	}
	k := &Kubelet{PID: p.PID}
	configuration, err := p.Args.Configuration(p.Root())
	if k.Err = err; err != nil {
		return k
	}
	k.Endpoint, k.From = configuration.Endpoint()
	if k.Changed, k.Err = p.Changed(); k.Err != nil {
		return k
	}
	k.Other, k.Err = kubeletargs.ReadField(p.Root() + kubeletargs.InstanceConfig)
	return k
}

// kubelet finds the one that bypasses kubecri.
func (c *checker) kubelet() {
	k := c.Kubelet
	if k == nil {
		return
	}
	const past = "so that containers start without their devices"
	switch {
	case k.Err != nil:
		c.fail("kubelet", "process %d: cannot tell which runtime it uses: %v", k.PID, k.Err)
		return
	case k.PID == 0:
		c.note("kubelet", "no process of it is seen from here, so it is not known whether it uses %s", c.Listen)
		return
	case !kubeletargs.SameSocket(k.Endpoint, c.Listen):
		c.fail("kubelet", "process %d uses %s, as %s says, and not kubecri at %s, %s. Run `kubecri install`, or set it there and restart the kubelet",
			k.PID, k.Endpoint, k.From, c.Listen, past)
		return
	case k.Changed != "":
		c.fail("kubelet", "process %d has not read %s, which was changed after it started: it may use the runtime, bypassing kubecri, %s. Restart it", k.PID, k.Changed, past)
		return
	}
	c.ok("kubelet", "process %d uses %s, as %s says", k.PID, k.Endpoint, k.From)
	if k.Other != "" && !kubeletargs.SameSocket(k.Other, c.Listen) {
		c.fail("kubelet", "%s says %s: the next `kubeadm upgrade` will have the kubelet use that, bypassing kubecri. "+
			"Run `kubecri install`, or set it to %s", kubeletargs.InstanceConfig, k.Other, c.Listen)
	}
}

// maxSkew is how many minor versions a kubelet may be older than the API server (Kubernetes'
// version skew policy).
const maxSkew = 3

// versions looks at what is beside this kubecri.
func (c *checker) versions() {
	if c.nodeError != nil {
		c.fail("versions", "get node %s: %v. Is that its name (--node-name)?", c.Node, c.nodeError)
		return
	}
	kubelet := c.node.Status.NodeInfo.KubeletVersion
	c.ok("versions", "kubecri %s, kubelet %s", version.Version(), kubelet)
	k, err := utilversion.ParseGeneric(kubelet)
	if err != nil {
		c.note("versions", "the kubelet's version %q cannot be read: %v", kubelet, err)
		return
	}
	s, err := utilversion.ParseGeneric(c.serverVersion)
	if err != nil {
		c.note("versions", "the API server's version %q cannot be read: %v", c.serverVersion, err)
		return
	}
	if s.Minor() < version.OldestKubernetesMinor {
		c.note("versions", "Kubeslot is made for API servers 1.%d and newer, and this one is %s", version.OldestKubernetesMinor, c.serverVersion)
	}
	switch {
	case k.Minor() > s.Minor():
		c.note("versions", "the kubelet is newer than the API server %s, which Kubernetes does not support", c.serverVersion)
	case k.Minor()+maxSkew < s.Minor():
		c.note("versions", "the kubelet is more than %d minor versions older than the API server %s, which Kubernetes does not support", maxSkew, c.serverVersion)
	case k.Minor() < version.OldestKubernetesMinor:
		c.note("versions", "kubecri is made for kubelets 1.%d and newer", version.OldestKubernetesMinor)
	}
}
