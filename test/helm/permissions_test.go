package helm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/test/permissions"
)

// Without brokers or services the controller has no permission for them, and does not try.
func TestControllerWithoutBrokersAndServices(t *testing.T) {
	h := newHelm(t, 4)
	for off, gone := range map[string][]string{
		"brokers":  {"jobs.batch", "resourceclaimtemplates.resource.k8s.io"},
		"services": {"services"},
	} {
		all := h.render(t, "--set", "controller."+off+".enabled=false")
		may := permissions.Of(t, []byte(text(t, all)))
		var table []permissions.Permission
		for _, p := range permissions.Controller {
			if p.Resource == "pods" && off == "brokers" {
				p.Verbs = "get list watch"
			}
			if !slices.Contains(gone, p.Resource) {
				table = append(table, p)
			}
		}
		permissions.Only(t, may, serviceaccount.UserInfo("kubeslot-system", "kubeslot-controller", ""), table)
		args := fmt.Sprint(container(all.get(t, "Deployment", "kubeslot-controller"))["args"])
		if want := "--enable-" + off + "=false"; !strings.Contains(args, want) ||
			strings.Count(args, "--enable-") != 1 {
			t.Errorf("without %s the controller runs with %s, want %s", off, args, want)
		}
	}
}

// With device plugins alone the controller hands devices over to DRA; a scheduler of ours does where there is one.
func TestControllerWithoutScheduler(t *testing.T) {
	h := newHelm(t, 4)
	for mode, want := range map[string]bool{"device-plugin": true, "nri": false} {
		all := h.render(t, "--set", "scheduler.enabled=false,kubecri.mode="+mode)
		args := fmt.Sprint(container(all.get(t, "Deployment", "kubeslot-controller"))["args"])
		if got := strings.Contains(args, "--without-scheduler"); got != want {
			t.Errorf("in mode %s the controller runs with %s, want --without-scheduler: %t", mode, args, want)
		}
	}
	args := fmt.Sprint(container(h.render(t, "--set", "kubecri.mode=device-plugin").get(t, "Deployment",
		"kubeslot-controller"))["args"])
	if strings.Contains(args, "--without-scheduler") {
		t.Errorf("beside a scheduler of ours the controller runs with %s", args)
	}
}

// text is the objects' YAML.
func text(t *testing.T, all objects) string {
	t.Helper()
	var text strings.Builder
	for _, o := range all {
		document, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString("---\n" + string(document))
	}
	return text.String()
}

// Each ServiceAccount of the chart may do what is in its table, and nothing else. That of
// the Job that cleans up is there only while the Job runs, and what runs on each node then has none.
func TestWhatTheChartsAccountsMayDo(t *testing.T) {
	all := newHelm(t, 4).render(t, "--set", "monitoring.enabled=true")
	accounts := map[string]bool{}
	roles := map[string][]string{} // by account
	for _, o := range all {
		switch o.GetKind() {
		case "ServiceAccount":
			accounts[o.GetName()] = true
		case "ClusterRoleBinding", "RoleBinding":
			var binding rbacv1.ClusterRoleBinding
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &binding); err != nil {
				t.Fatal(err)
			}
			for _, subject := range binding.Subjects {
				roles[subject.Name] = append(roles[subject.Name], binding.RoleRef.Name)
			}
		}
	}
	may := permissions.Of(t, []byte(text(t, all)))
	tables := map[string][]permissions.Permission{
		"kubecri": permissions.Kubecri, "kubeslot-controller": permissions.Controller,
		"kube-scheduler": permissions.SchedulerOfTheChart, "kubeslot-uninstall": permissions.Uninstall,
		"kubeslot-metrics": nil, // no resources: /metrics alone, see below
	}
	for name, table := range tables {
		permissions.Only(t, may, serviceaccount.UserInfo("kubeslot-system", name, ""), table)
		delete(accounts, name)
	}
	if len(accounts) > 0 {
		t.Errorf("these ServiceAccounts have no table: %q", slices.Sorted(maps.Keys(accounts)))
	}
	// The authorizer does not know the roles that every cluster has.
	slices.Sort(roles["kube-scheduler"])
	if diff := cmp.Diff([]string{"extension-apiserver-authentication-reader", "kubeslot:kube-scheduler", "kubeslot:kube-scheduler",
		"system:kube-scheduler", "system:volume-scheduler"}, roles["kube-scheduler"]); diff != "" {
		t.Errorf("roles of the scheduler (-want +got):\n%s", diff)
	}
	rules := []any{map[string]any{"nonResourceURLs": []any{"/metrics"}, "verbs": []any{"get"}}}
	if diff := cmp.Diff(rules, field(all.get(t, "ClusterRole", "kubeslot:metrics"), "rules")); diff != "" {
		t.Errorf("what the token of the ServiceMonitors may do (-want +got):\n%s", diff)
	}
	for name := range tables {
		for _, role := range roles[name] {
			if name != "kube-scheduler" && !strings.HasPrefix(role, "kubeslot:") {
				t.Errorf("%s has role %s, which is not the chart's", name, role)
			}
		}
	}

	for _, o := range all {
		if n := o.GetName(); n == "kubeslot-uninstall" || n == "kubeslot:uninstall" {
			if on, gone := o.GetAnnotations()["helm.sh/hook"], o.GetAnnotations()["helm.sh/hook-delete-policy"]; on != "post-delete" || !strings.Contains(gone, "hook-succeeded") {
				t.Errorf("%s %s is a hook %q that goes with %q: want it while the release goes, and no longer", o.GetKind(), n, on, gone)
			}
		}
	}
	pod := map[string]any{}
	if err := yaml.Unmarshal([]byte(field(all.get(t, "ConfigMap", "kubeslot-uninstall"), "data", "pod.yaml").(string)), &pod); err != nil {
		t.Fatal(err)
	}
	if spec := pod["spec"].(map[string]any); spec["automountServiceAccountToken"] != false || spec["serviceAccountName"] != nil {
		t.Errorf("the pod on each node has a token: %v, %v", spec["automountServiceAccountToken"], spec["serviceAccountName"])
	}
}
