package hostinstall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	nodeutil "k8s.io/component-helpers/node/util"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/kubecri/install/kubeletargs"
	"github.com/kubeslot/kubeslot/kubecri/proxy"
)

// Health tells whether kubecri and the kubelet are well.
type Health struct {
	// Kube, if set, is asked whether the node is Ready. Set it only when the node was
	// before: then Ready has to be said by a kubelet that was started since.
	Kube kubernetes.Interface
	Node string
}

const (
	questionTimeout = 3 * time.Second
	// steady is how long a kubelet has to be healthy whose node was not Ready before, so
	// that this says nothing.
	steady = 5 * time.Second
)

// Ready is what Applier.Ready wants.
func (h Health) Ready(ctx context.Context, p Plan, unit string, what Await, since time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	u, err := showUnit(ctx, unit)
	if err != nil {
		return err
	}
	if !u.active || u.pid == 0 {
		return errors.New("it is not active")
	}
	switch what {
	case Started:
		return nil
	case Serving:
		return serving(ctx, p.Listen)
	default:
		return h.kubelet(ctx, p, u.pid, since)
	}
}

// serving asks for the runtime's version, through kubecri.
func serving(ctx context.Context, listen string) error {
	conn, err := proxy.Dial(listen)
	if err != nil {
		return Fatal{err}
	}
	defer conn.Close()
	if _, err := runtimeapi.NewRuntimeServiceClient(conn).Version(ctx, &runtimeapi.VersionRequest{}); err != nil {
		return fmt.Errorf("ask for the runtime's version at %s: %w", listen, err)
	}
	return nil
}

// kubelet is nil when the process has read the configuration as it is now, uses the
// endpoint that it is to use, says that it is healthy, and has told the API server so.
func (h Health) kubelet(ctx context.Context, p Plan, pid int, since time.Time) error {
	process, is, err := kubeletargs.ReadProcess(pid)
	if err != nil || !is {
		return errors.Join(err, fmt.Errorf("its main process %d is no kubelet yet", pid))
	}
	configuration, err := process.Args.Configuration("")
	if err != nil {
		return err
	}
	endpoint, from := configuration.Endpoint()
	if p.Endpoint != "" && !kubeletargs.SameSocket(endpoint, p.Endpoint) {
		return Fatal{fmt.Errorf("the kubelet uses %s, as %s says, and not %s", endpoint, from, p.Endpoint)}
	}
	if configuration.Healthz != "" {
		if err := healthz(ctx, configuration.Healthz); err != nil {
			return err
		}
	}
	if h.Kube == nil {
		if time.Since(since) < steady {
			return fmt.Errorf("it has not run for %s yet", steady)
		}
		return nil
	}
	node, err := h.Kube.CoreV1().Nodes().Get(ctx, h.Node, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("ask the API server for node %s: %w", h.Node, err)
	}
	return nodeReady(node, since)
}

func healthz(ctx context.Context, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/healthz", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(response.Body, 500))
		return fmt.Errorf("http://%s/healthz says %s: %s", address, response.Status, strings.TrimSpace(string(body)))
	}
	return nil
}

// nodeReady is nil when the node has been Ready since the time. Heartbeats have whole
// seconds.
func nodeReady(node *corev1.Node, since time.Time) error {
	_, ready := nodeutil.GetNodeCondition(&node.Status, corev1.NodeReady)
	switch {
	case ready == nil:
		return fmt.Errorf("node %s has no condition Ready", node.Name)
	case ready.LastHeartbeatTime.Time.Before(since.Truncate(time.Second)):
		return fmt.Errorf("node %s has not reported since the restart", node.Name)
	case ready.Status != corev1.ConditionTrue:
		return fmt.Errorf("node %s is not Ready: %s", node.Name, ready.Message)
	}
	return nil
}
