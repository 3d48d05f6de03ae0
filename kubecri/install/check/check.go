// Package check tells a person whether kubecri can do its work on this node, and
// what it would do for a pod. It asks the runtime and the API server as kubecri
// would, and changes nothing.
package check

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	nodeutil "k8s.io/component-helpers/node/util"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/kubecri/cdi"
	"github.com/kubeslot/kubeslot/kubecri/soplugins"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment/signing"
	clientset "github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// timeout bounds each question.
const timeout = 5 * time.Second

// DefaultDevices is where KubeDevice's plugins are.
const DefaultDevices = "/usr/local/KubeExt/devices"

// Config is what is to be checked; everything but Pod, Plugins, the image service
// and NRI is required.
type Config struct {
	Node string
	// RuntimeEndpoint and Server are told to the reader.
	RuntimeEndpoint, Server string
	Runtime                 cdi.Runtime
	// ImageEndpoint and Images are of an image service that is not the runtime's;
	// both are empty otherwise.
	ImageEndpoint string
	Images        runtimeapi.ImageServiceClient
	// NRI is the path of the runtime's NRI socket in NRI mode, "" in other modes.
	NRI string
	// DevicePlugin is set in device-plugin mode.
	DevicePlugin *DevicePlugin
	// Kubelet, if set, is this node's, which should use the socket Listen.
	Kubelet *Kubelet
	Listen  string
	Kube    kubernetes.Interface
	// Client is of akri.sh and kubeslot.io.
	Client clientset.Interface
	// Devices is the directory of device plugins, and Sockets that of those that are processes of
	// their own, "" for none. Plugins, if set, are those in both, started, to be asked what the pod gets.
	Devices string
	Sockets string
	Plugins *soplugins.Plugins
	// Verifier of assignments, as kubecri has it; nil for none.
	Verifier *signing.Verifier
	// Pod is namespace/name of the pod to explain, "" for none.
	Pod string
}

// checker writes findings and remembers whether one was bad.
type checker struct {
	Config
	out io.Writer
	bad bool

	runtimeName    string // and its version; "" where it does not answer
	serverVersion  string
	node           *corev1.Node
	nodeError      error // why node is not known
	configurations []*akriv0.Configuration
	claimed        []v1alpha1.SlotClaim       // by this node
	reached        map[string]v1alpha1.Device // by Instance
}

// Run writes what it finds to out and reports whether all is well.
func Run(ctx context.Context, out io.Writer, config Config) bool {
	c := &checker{Config: config, out: out}
	c.runtime(ctx)
	c.images(ctx)
	c.nri(ctx)
	c.kubelet()
	c.devicePlugin(ctx)
	c.plugins()
	if c.api(ctx) {
		c.permissions(ctx)
		c.versions()
		c.required()
		known := c.devices(ctx)
		if known && c.DevicePlugin != nil {
			c.advertised()
		}
		if known && c.Pod != "" {
			c.pod(ctx)
		}
	}
	return !c.bad
}

// print writes a line. What devices, nodes and pods say is in it: it moves no cursor.
func (c *checker) print(mark, what, format string, args ...any) {
	text := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " "))
	fmt.Fprintf(c.out, "%-5s %-10s %s\n", mark, what, text)
}

func (c *checker) ok(what, format string, args ...any)   { c.print("ok", what, format, args...) }
func (c *checker) note(what, format string, args ...any) { c.print("note", what, format, args...) }
func (c *checker) fail(what, format string, args ...any) {
	c.bad = true
	c.print("FAIL", what, format, args...)
}

func (c *checker) runtime(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	support, err := cdi.Probe(ctx, c.Runtime)
	if err != nil {
		c.fail("runtime", "%s: %v. Is it running, and is --runtime-endpoint its socket?%s", c.RuntimeEndpoint, err, otherSockets(c.RuntimeEndpoint))
		return
	}
	c.runtimeName = support.Runtime
	c.ok("runtime", "%s at %s", support.Runtime, c.RuntimeEndpoint)
	if !support.On {
		c.note("CDI", "is off, %s: devices are written into the requests instead", support.Why)
		return
	}
	c.ok("CDI", "is on, %s; specs are read from %s", support.Why, strings.Join(support.Dirs, ", "))
}

func (c *checker) images(ctx context.Context) {
	if c.Images == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := Images(ctx, c.Images); err != nil {
		c.fail("images", "%s: %v. Is it running, and is --image-service-endpoint its socket?", c.ImageEndpoint, err)
		return
	}
	c.ok("images", "are served at %s", c.ImageEndpoint)
}

// Images asks an image service whether it has an image, which costs it least.
func Images(ctx context.Context, images runtimeapi.ImageServiceClient) error {
	_, err := images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: "kubeslot.invalid/none"}})
	if err != nil {
		return fmt.Errorf("ask the image service for an image: %w", err)
	}
	return nil
}

// nri connects as a plugin does, and goes before it would register.
func (c *checker) nri(ctx context.Context) {
	if c.NRI == "" {
		return
	}
	if err := dial(ctx, c.NRI); err != nil {
		c.fail("NRI", "%v. Is NRI on in the runtime, and is --nri-socket its socket? %s", err, switchOn(c.runtimeName))
		return
	}
	c.ok("NRI", "the runtime takes plugins at %s", c.NRI)
}

// required says whether the runtime requires the plugin, as kubecri has the node say it.
func (c *checker) required() {
	if c.NRI == "" {
		return
	}
	if c.nodeError != nil {
		c.note("NRI", "whether the runtime requires kubecri is not known: get node %s: %v", c.Node, c.nodeError)
		return
	}
	switch _, condition := nodeutil.GetNodeCondition(&c.node.Status, v1alpha1.StartsWithoutKubecri); {
	case condition == nil:
		c.note("NRI", "whether the runtime starts containers without their devices while kubecri is away is not "+
			"known: kubecri sees it when a container is created here (docs/nri.md)")
	case condition.Status == corev1.ConditionFalse:
		c.ok("NRI", "%s", condition.Message)
	default:
		c.note("NRI", "%s", condition.Message)
	}
}

func (c *checker) api(ctx context.Context) bool {
	version, err := c.Kube.Discovery().ServerVersion()
	if err != nil {
		c.fail("API", "%s: %v. Is --kubeconfig right?", c.Server, err)
		return false
	}
	c.ok("API", "server %s at %s", version.GitVersion, c.Server)
	c.serverVersion = version.GitVersion
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c.node, c.nodeError = c.Kube.CoreV1().Nodes().Get(ctx, c.Node, metav1.GetOptions{})
	return true
}

// permission is something that kubecri must be allowed to do.
type permission struct {
	group, resource, subresource string
	verbs                        []string
	// field is the one by which kubecri selects what is its node's: a kubelet's own
	// identity may see no more.
	field string
	// without says what kubecri cannot do without it, where it can do all else.
	without string
}

// permissions are those of deploy/rbac/kubecri.yaml that the program uses.
var permissions = []permission{
	{group: "akri.sh", resource: "configurations", verbs: []string{"list", "watch"}},
	{group: "kubeslot.io", resource: "deviceslices", verbs: []string{"get", "list", "watch", "create", "update", "delete"}},
	{group: "kubeslot.io", resource: "slotclaims", verbs: []string{"get", "list", "watch", "create", "delete"}},
	{group: "coordination.k8s.io", resource: "leases", verbs: []string{"get", "list", "watch"}},
	{group: "coordination.k8s.io", resource: "leases", verbs: []string{"create", "update"},
		without: "this node does not discover for others what a Configuration with spec.discovery describes"},
	{resource: "pods", verbs: []string{"list", "watch"}, field: "spec.nodeName"},
	{resource: "nodes", verbs: []string{"list", "watch"}, field: metav1.ObjectNameField},
	{resource: "nodes", subresource: "status", verbs: []string{"patch"}, field: metav1.ObjectNameField},
	{resource: "namespaces", verbs: []string{"get"}},
	{resource: "events", verbs: []string{"create", "patch"}},
}

func (c *checker) permissions(ctx context.Context) {
	var missing []string
	for _, r := range permissions {
		var lacks []string
		for _, verb := range r.verbs {
			allowed, err := c.may(ctx, r, verb)
			if err != nil {
				c.fail("RBAC", "cannot be asked for: %v", err)
				return
			}
			if !allowed {
				lacks = append(lacks, verb+" "+strings.TrimSuffix(r.resource+"/"+r.subresource, "/"))
			}
		}
		if r.without != "" && len(lacks) > 0 {
			c.note("RBAC", "lacks: %s; so %s", strings.Join(lacks, ", "), r.without)
			continue
		}
		missing = append(missing, lacks...)
	}
	if len(missing) > 0 {
		c.fail("RBAC", "lacks: %s. Apply deploy/, and give kubecri a certificate of system:kubecri:%s in group system:kubecris; or, for the kubelet's own identity, apply deploy/kubelet-identity/",
			strings.Join(missing, ", "), c.Node)
		return
	}
	c.ok("RBAC", "all that it needs of deploy/rbac/kubecri.yaml")
}

func (c *checker) may(ctx context.Context, r permission, verb string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	attributes := &authorizationv1.ResourceAttributes{Group: r.group, Resource: r.resource, Subresource: r.subresource, Verb: verb}
	if r.field == metav1.ObjectNameField { // a request with this selector is one for the name
		attributes.Name = c.Node
	}
	if r.field != "" && verb != "patch" {
		attributes.FieldSelector = &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{
			{Key: r.field, Operator: metav1.FieldSelectorOpIn, Values: []string{c.Node}}}}
	}
	review, err := c.Kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes}}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}
