package monitoring

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/deploy/monitoring"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/test/need"
)

// prometheus is a real one, which reads the metrics of a cluster's components and
// evaluates the rules each second.
type prometheus struct {
	address string
	began   time.Time
}

// target is a component's metrics inside the cluster's networks.
type target struct {
	job, node string // node is "" in the control plane
	url       string
}

func targets(c *cluster.Cluster) []target {
	all := []target{
		{job: "kubeslot-scheduler", url: "https://127.0.0.1:10259/metrics"},
		{job: "kubeslot-controller", url: "http://127.0.0.1:10360/metrics"},
	}
	for _, node := range c.Nodes() {
		all = append(all, target{job: "kubecri", node: node.Name, url: "http://127.0.0.1:10349/metrics"})
	}
	return all
}

// gateway leads from the host into the cluster's networks: /<job>/<node>.
func gateway(t *testing.T, c *cluster.Cluster) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	for _, at := range targets(c) {
		config, err := c.RESTConfig()
		if err != nil {
			t.Fatal(err)
		}
		config.Insecure, config.CAData, config.CAFile = true, nil, "" // the scheduler's certificate is its own
		config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			return c.Dial(ctx, at.node, network, address)
		}
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		mux.HandleFunc("/"+at.job+"/"+at.node, func(w http.ResponseWriter, r *http.Request) {
			request, err := http.NewRequestWithContext(r.Context(), http.MethodGet, at.url, nil)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			response, err := client.Do(request)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			defer response.Body.Close()
			w.Header().Set("Content-Type", response.Header.Get("Content-Type"))
			w.WriteHeader(response.StatusCode)
			_, _ = io.Copy(w, response.Body)
		})
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

// hasty are the rules without the time that they wait, and with seconds in the place of
// minutes.
func hasty(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, monitoring.RulesFile))
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`(?m)^    for: .*\n`).ReplaceAll(text, nil)
	text = regexp.MustCompile(`\[\d+m\]`).ReplaceAll(text, []byte("[10s]"))
	return []byte(strings.Replace(string(text), "> 900", "> 3", 1))
}

// startPrometheus starts it on an address of this machine's loopback.
func startPrometheus(t *testing.T, bin string, c *cluster.Cluster) *prometheus {
	t.Helper()
	at, err := url.Parse(gateway(t, c).URL)
	if err != nil {
		t.Fatal(err)
	}
	var static []any
	for _, target := range targets(c) {
		labels := map[string]string{"job": target.job, "instance": strings.TrimSuffix(target.job+"-"+target.node, "-"), "__metrics_path__": "/" + target.job + "/" + target.node}
		if target.node != "" {
			labels["node"] = target.node
		}
		static = append(static, map[string]any{"targets": []string{at.Host}, "labels": labels})
	}
	dir := t.TempDir()
	config, err := yaml.Marshal(map[string]any{
		"global":         map[string]string{"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
		"rule_files":     []string{"rules.yaml"},
		"scrape_configs": []any{map[string]any{"job_name": "cluster", "static_configs": static}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"prometheus.yaml": config, "rules.yaml": hasty(t)} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := &prometheus{address: fmt.Sprint("127.0.0.1:", need.Port(t)), began: time.Now()}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(bin, "prometheus"), "--config.file="+filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+p.address)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("Prometheus says:\n%.8000s", text)
		}
	})
	await.That(t, "Prometheus to be ready", func() (bool, string) {
		response, err := http.Get("http://" + p.address + "/-/ready")
		if err != nil {
			return false, err.Error()
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK, response.Status
	})
	return p
}

// get asks the API.
func (p *prometheus) get(t *testing.T, path string, query url.Values, into any) error {
	t.Helper()
	response, err := http.Get("http://" + p.address + "/api/v1/" + path + "?" + query.Encode())
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: into}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", path, answer.Error)
	}
	return nil
}

// alert is one that fires.
type alert struct {
	Labels, Annotations map[string]string
	State               string
}

// firing are the alerts that fire now.
func (p *prometheus) firing(t *testing.T) []alert {
	t.Helper()
	var data struct{ Alerts []alert }
	if err := p.get(t, "alerts", nil, &data); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(data.Alerts, func(a alert) bool { return a.State != "firing" })
}

// awaitAlert waits until the alert fires, with labels among them, and looks at its texts.
func (p *prometheus) awaitAlert(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	var found alert
	await.That(t, fmt.Sprintf("alert %s%v to fire", name, labels), func() (bool, string) {
		all := p.firing(t)
		i := slices.IndexFunc(all, func(a alert) bool {
			if a.Labels["alertname"] != name {
				return false
			}
			for label, value := range labels {
				if a.Labels[label] != value {
					return false
				}
			}
			return true
		})
		if i < 0 {
			return false, fmt.Sprintf("firing: %v", names(all))
		}
		found = all[i]
		return true, ""
	})
	for what, text := range found.Annotations {
		if text == "" || strings.Contains(text, "<no value>") || strings.Contains(text, "error ") || strings.Contains(text, "{{") {
			t.Errorf("%s: annotation %s is %q", name, what, text)
		}
	}
	t.Logf("%s %v: %s", name, found.Labels, found.Annotations["description"])
}

func names(all []alert) []string {
	var names []string
	for _, a := range all {
		labels := maps.Clone(a.Labels)
		delete(labels, "alertname")
		names = append(names, fmt.Sprint(a.Labels["alertname"], labels))
	}
	slices.Sort(names)
	return names
}

// series are what a range query gives, over all the time since the start.
func (p *prometheus) series(t *testing.T, expr string) (int, error) {
	t.Helper()
	var data struct{ Result []any }
	now := time.Now()
	err := p.get(t, "query_range", url.Values{"query": {expr}, "step": {"1s"},
		"start": {fmt.Sprint(p.began.Unix())}, "end": {fmt.Sprint(now.Unix())}}, &data)
	return len(data.Result), err
}

// metrics are the names of all that were read.
func (p *prometheus) metrics(t *testing.T) map[string]bool {
	t.Helper()
	var all []string
	if err := p.get(t, "label/__name__/values", url.Values{"start": {fmt.Sprint(p.began.Unix())}}, &all); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, name := range all {
		known[name] = true
	}
	return known
}
