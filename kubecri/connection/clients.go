package connection

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	"github.com/kubeslot/kubeslot/types/client/restored"
)

// Requests a second to the API server, and at once: claims of a node full of
// device pods that all start together are not to queue here.
const qps, burst = 100, 200

// Clients are those of the API server. They share one connection: a thousand nodes that
// start together are a thousand TLS handshakes for it, not two thousand.
type Clients struct {
	Server   string // its URL
	Kube     kubernetes.Interface
	Client   versioned.Interface // of akri.sh and kubeslot.io
	Restored *restored.Guard     // follows the requests of both
}

// NewClients reads a kubeconfig, "" for the pod's ServiceAccount. It connects to nothing.
func NewClients(kubeconfig string) (*Clients, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %q: %w", kubeconfig, err)
	}
	config.QPS, config.Burst = qps, burst
	config = rest.AddUserAgent(config, "kubecri")
	c := &Clients{Server: config.Host, Restored: restored.New(config)}
	api, err := New(config)
	if err != nil {
		return nil, err
	}
	if c.Client, err = versioned.NewForConfigAndClient(config, api); err != nil {
		return nil, err
	}
	core := rest.CopyConfig(config) // custom resources have no protobuf
	core.ContentType = runtime.ContentTypeProtobuf
	core.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	c.Kube, err = kubernetes.NewForConfigAndClient(core, api)
	return c, err
}
