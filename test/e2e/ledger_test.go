package e2e

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

// ledgersAgree waits until the ledger of each scheduler that runs says of the
// Configuration's slots what the API shows: what one would say that is rebuilt from
// it.
func (r *rig) ledgersAgree(configuration string) {
	r.Helper()
	client := r.metricsClient()
	defer client.CloseIdleConnections()
	r.await("the schedulers' ledgers to agree with the API about "+configuration, func() (bool, string) {
		asked, want := 0, r.slotsByState(configuration)
		for component, port := range schedulerPorts {
			if _, err := shared.PID(component, ""); err != nil {
				continue
			}
			asked++
			got, err := slotsMetric(r.ctx, client, port, configuration)
			if err != nil || !maps.Equal(got, want) {
				return false, fmt.Sprintf("%s says %v (%v), the API %v", component, got, err, want)
			}
		}
		return asked > 0, "no scheduler runs"
	})
}

// slotsByState counts the Configuration's slots as the API shows them, in the words
// of the metric kubeslot_scheduler_slots.
func (r *rig) slotsByState(configuration string) map[string]int {
	r.Helper()
	pods, err := kube.CoreV1().Pods(r.ns).List(r.ctx, metav1.ListOptions{})
	r.check(err)
	holders := map[slot.Name]int{}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Spec.NodeName == "" || p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
			continue
		}
		for name := range r.granted(p) {
			holders[name]++
		}
	}
	counts := map[string]int{"free": 0, "held": 0, "claimed": 0, "conflicting": 0}
	claims := r.claims(configuration)
	for _, d := range r.devices(configuration) {
		c, err := akri.AkriV0().Configurations(r.ns).Get(r.ctx, configuration, metav1.GetOptions{})
		r.check(err)
		for index := range c.Spec.Slots() {
			name := slot.Name{Instance: d.name, Index: index}
			switch n := holders[name]; {
			case n > 1:
				counts["conflicting"]++
			case n == 1:
				counts["held"]++
			case slices.Contains(d.nodes, claims[name.String()].node):
				counts["claimed"]++
			default:
				counts["free"]++
			}
		}
	}
	return counts
}

// granted are the slots that a bound pod was given.
func (r *rig) granted(p *v1.Pod) map[slot.Name]bool {
	r.Helper()
	info, err := assignment.Granted(p.Annotations, string(p.UID), p.Spec.NodeName)
	r.check(err)
	slots := map[slot.Name]bool{}
	if info == nil {
		return slots
	}
	for _, containers := range []map[string]types.ContainerInfo{info.InitContainers, info.RunningContainers} {
		for _, c := range containers {
			grants, err := assignment.Grants(&c)
			r.check(err)
			for _, g := range grants {
				slots[g.Slot] = true
			}
		}
	}
	return slots
}

// slotsMetric reads a scheduler's metric kubeslot_scheduler_slots. What it keeps for
// a pod that preempted is free to the API.
func slotsMetric(ctx context.Context, client *http.Client, port int, configuration string) (map[string]int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/metrics", port), nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %.200s: %w", response.Status, text, err)
	}
	m := testutil.NewMetrics()
	if err := testutil.ParseMetrics(string(text), &m); err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for _, sample := range m["kubeslot_scheduler_slots"] {
		state := string(sample.Metric["state"])
		if state == "nominated" {
			state = "free"
		}
		if string(sample.Metric["configuration"]) == configuration {
			counts[state] += int(sample.Value)
		}
	}
	return counts, nil
}

// metricsClient is the admin, inside the control plane's network. Schedulers make
// their certificates up themselves.
func (r *rig) metricsClient() *http.Client {
	r.Helper()
	config, err := shared.RESTConfig()
	r.check(err)
	config.Insecure, config.CAData, config.CAFile = true, nil, ""
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		return shared.Dial(ctx, "", network, address)
	}
	client, err := rest.HTTPClientFor(config)
	r.check(err)
	return client
}
