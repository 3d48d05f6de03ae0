package helm

import (
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/test/cluster"
)

// operatorCRDs makes the definitions of the Prometheus Operator, without which the chart has
// no ServiceMonitors.
func (in *install) operatorCRDs() {
	in.Helper()
	folder, err := cluster.PrometheusOperatorCRDs(in.ctx, root)
	in.check(err)
	for _, kind := range []string{"servicemonitors", "prometheusrules"} {
		in.kubectl("create", "-f", filepath.Join(folder, "monitoring.coreos.com_"+kind+".yaml"))
	}
	in.await("the operator's definitions to be served", func() (bool, string) {
		out, err := in.Kubectl(in.ctx, "get", "servicemonitors,prometheusrules", "-A")
		return err == nil, out
	})
}

// monitored checks that the release has what the operator reads, and that the definitions
// know each field of it.
func (in *install) monitored() {
	in.Helper()
	kinds := map[string]int{}
	var ours []string
	for _, o := range parse(in.T, in.helm("get", "manifest", "kubeslot")) {
		if o.GroupVersionKind().Group == "monitoring.coreos.com" {
			kinds[o.GetKind()]++
			text, err := yaml.Marshal(o.Object)
			in.check(err)
			ours = append(ours, string(text))
		}
	}
	if kinds["ServiceMonitor"] != 3 || kinds["PrometheusRule"] != 1 {
		in.Errorf("where there is a Prometheus Operator the release has %v", kinds)
	}
	file := filepath.Join(in.TempDir(), "monitoring.yaml")
	in.check(os.WriteFile(file, []byte(strings.Join(ours, "---\n")), 0o600))
	in.kubectl("replace", "--dry-run=server", "--validate=strict", "-f", file)
}
