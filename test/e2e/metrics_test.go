package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// controllerMetrics is what the controller serves.
func (r *rig) controllerMetrics() string {
	r.Helper()
	return r.metrics("", "http://127.0.0.1:10360/metrics")
}

// metrics are what is served at an address of a node, or of the control plane: "".
func (r *rig) metrics(node, address string) string {
	r.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		return shared.Dial(ctx, node, network, address)
	}}, Timeout: patience}
	text := ""
	r.await("an answer of "+address, func() (bool, string) { // who serves it may be starting again
		response, err := client.Get(address)
		if err != nil {
			return false, err.Error()
		}
		defer response.Body.Close()
		all, err := io.ReadAll(response.Body)
		text = string(all)
		return err == nil, fmt.Sprint(err)
	})
	return text
}

// kubecriMetric is the value of a metric of the node's kubecri, named with its labels as it
// is served.
func (r *rig) kubecriMetric(node, name string) float64 {
	r.Helper()
	text := r.metrics(node, "http://127.0.0.1:10349/metrics")
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			r.check(err)
			return n
		}
	}
	r.Fatalf("kubecri of %s has no metric %s", node, name)
	return 0
}
