package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// AwaitServing waits until a component does its work, for example after Start.
// It returns early when the component has ended.
func (c *Cluster) AwaitServing(ctx context.Context, component, node string) error {
	probe := c.probe(component, node)
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		err := probe(ctx)
		if err == nil {
			return nil
		}
		if _, ended := c.PID(component, node); ended != nil {
			return ended
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not serve: %w; last seen: %w", processID(component, node), ctx.Err(), err)
		case <-poll.C:
		}
	}
}

// probe returns a function that returns nil once a component serves.
func (c *Cluster) probe(component, node string) func(context.Context) error {
	control := c.layout.netNS(controlNS)
	n := c.layout.node(node)
	switch component {
	case Etcd:
		return httpOK(control, "http://127.0.0.1:2379/health")
	case APIServer:
		return c.apiServerReady
	case ControllerManager:
		return httpOK(control, "https://127.0.0.1:10257/healthz")
	case Controller:
		return httpOK(control, "http://127.0.0.1:10361/readyz")
	case Kubelet:
		return httpOK(n.NetNS, "http://127.0.0.1:10248/healthz")
	case Containerd:
		return criAnswers(n.ContainerdSocket)
	case Kubecri:
		if !isProxy(c.cfg, node) {
			return httpOK(n.NetNS, "http://127.0.0.1:10349/readyz")
		}
		return criAnswers(n.KubecriSocket)
	case Forwarder:
		return c.forwarderListens
	}
	if strings.HasPrefix(component, Scheduler) {
		return httpOK(control, "https://127.0.0.1:"+c.schedulerPort(component)+"/readyz")
	}
	return func(context.Context) error { return fmt.Errorf("no such component: %q", component) }
}

func (c *Cluster) apiServerReady(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

func (c *Cluster) forwarderListens(ctx context.Context) error {
	address, err := c.layout.hostAddress()
	if err != nil {
		return err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// criAnswers probes a CRI socket. containerd accepts connections before it can
// answer, and kubelet ends when it meets that.
func criAnswers(socket string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer conn.Close()
		status, err := cri.NewRuntimeServiceClient(conn).Status(ctx, &cri.StatusRequest{})
		if err != nil {
			return err
		}
		for _, condition := range status.GetStatus().GetConditions() {
			needed := condition.Type == cri.RuntimeReady || condition.Type == cri.NetworkReady
			if needed && !condition.Status {
				return errors.New(condition.Type + ": " + condition.Message)
			}
		}
		return nil
	}
}

// httpOK probes a health endpoint from within a network namespace. Components
// serve it with a certificate that they make up themselves.
func httpOK(netNS, url string) func(context.Context) error {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return dialInNetNS(ctx, netNS, network, address)
		},
	}}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", url, response.Status)
		}
		return nil
	}
}
