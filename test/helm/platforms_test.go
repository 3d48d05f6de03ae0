package helm

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	resourcequotaapi "k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota"
	"k8s.io/apiserver/pkg/authentication/user"
	api "k8s.io/kubernetes/pkg/apis/core"
	conversion "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	psaapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"k8s.io/utils/clock"
)

// platforms are those with values of their own, with the APIs that they have besides Kubernetes'.
var platforms = map[string]string{
	"gke": "", "eks": "", "k3s": "", "rke2": "", "talos": "", "microk8s": "", "kind": "",
	"openshift": "security.openshift.io/v1/SecurityContextConstraints,monitoring.coreos.com/v1/ServiceMonitor",
}

// renderPlatform returns what the chart makes with a platform's values, which docs/platforms.md is about.
func (h helm) renderPlatform(t *testing.T, name string, args ...string) objects {
	t.Helper()
	args = append([]string{"-f", filepath.Join(chart, "platforms", name+".yaml")}, args...)
	if apis := platforms[name]; apis != "" {
		args = append(args, "--api-versions", apis)
	}
	return h.render(t, args...)
}

// What each platform's values render passes Kubernetes' published schemas, and docs/platforms.md has each file.
func TestPlatforms(t *testing.T) {
	h, published := newHelm(t, 4), publishedSchemas(t)
	files, err := filepath.Glob(filepath.Join(chart, "platforms", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f), ".yaml"))
	}
	if want := slices.Sorted(maps.Keys(platforms)); !slices.Equal(names, want) {
		t.Errorf("there are values for %q, want %q", names, want)
	}
	page := readFile(t, root, "docs/platforms.md")
	for _, name := range names {
		if !strings.Contains(page, "platforms/"+name+".yaml") {
			t.Errorf("docs/platforms.md says nothing of platforms/%s.yaml", name)
		}
		all := h.renderPlatform(t, name, withPlugins...)
		for _, o := range all {
			for _, err := range published.check(o) {
				t.Errorf("%s: %s: %v", name, key(o), err)
			}
		}
		if pods := all.pods(t); len(pods) != 8 {
			t.Errorf("%s: %d pods, want 8", name, len(pods))
		}
	}
}

// Pod Security's own checks: pods that work on nodes need the level privileged, all others are restricted.
func TestPodSecurity(t *testing.T) {
	checks, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	values := append([]string{"--set-json", `handlers={"udev":{},"onvif":{}}`}, withPlugins...)
	for _, pod := range newHelm(t, 4).render(t, values...).pods(t) {
		want := psaapi.LevelRestricted
		if worksOnNodes(pod.Name) {
			want = psaapi.LevelPrivileged
		}
		strictest := psaapi.LevelPrivileged
		var why string
		for _, level := range []psaapi.Level{psaapi.LevelBaseline, psaapi.LevelRestricted} {
			at := psaapi.LevelVersion{Level: level, Version: psaapi.LatestVersion()}
			result := policy.AggregateCheckResults(checks.EvaluatePod(at, &pod.ObjectMeta, &pod.Spec))
			if result.Allowed {
				strictest = level
			} else if why == "" {
				why = result.ForbiddenDetail()
			}
		}
		if strictest != want {
			t.Errorf("%s is taken at the level %s (%s), want %s", pod.Name, strictest, why, want)
		}
	}
}

// gkes is how GKE configures the API server's own admission of quotas, by what it answers: "insufficient quota to
// match these scopes: [{PriorityClass In [system-node-critical system-cluster-critical]}]", as in
// https://github.com/open-policy-agent/gatekeeper/issues/1120 and
// https://kubernetes.io/docs/concepts/policy/resource-quotas/#limit-priority-class-consumption-by-default
var gkes = []resourcequotaapi.LimitedResource{{
	Resource: "pods",
	MatchScopes: []corev1.ScopedResourceSelectorRequirement{{
		ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn,
		Values: []string{"system-node-critical", "system-cluster-critical"},
	}},
}}

// quotaAdmits asks Kubernetes' admission of quotas, in GKE's configuration, for the pod.
func quotaAdmits(t *testing.T, all objects, pod rendered) error {
	t.Helper()
	var quotas []corev1.ResourceQuota
	for _, o := range all {
		created := o.GetAnnotations()["helm.sh/hook"]
		there := created == pod.phase || created == "" && pod.phase == "test" // the release is there while it is tested
		if o.GetKind() != "ResourceQuota" || !there {
			continue
		}
		var q corev1.ResourceQuota
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &q); err != nil {
			t.Fatal(err)
		}
		q.Status.Hard, q.Status.Used = q.Spec.Hard, corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}
		quotas = append(quotas, q)
	}
	internal := &api.Pod{}
	if err := conversion.Convert_v1_Pod_To_core_Pod(pod.Pod.DeepCopy(), internal, nil); err != nil {
		t.Fatal(err)
	}
	attributes := admission.NewAttributesRecord(
		internal, nil, corev1.SchemeGroupVersion.WithKind("Pod"), pod.Namespace, pod.Name,
		corev1.SchemeGroupVersion.WithResource("pods"), "", admission.Create, nil, false, &user.DefaultInfo{})
	_, err := resourcequota.CheckRequest(quotas, attributes, core.NewPodEvaluator(nil, clock.RealClock{}), gkes)
	return err
}

func quotaTakes(t *testing.T, all objects, pod rendered) {
	t.Helper()
	if err := quotaAdmits(t, all, pod); err != nil {
		t.Errorf("with GKE's rule %s is refused: %v", pod.Name, err)
	}
}

// GKE takes pods of the critical PriorityClasses where the chart's ResourceQuota is, and in kube-system by its own.
func TestGKE(t *testing.T) {
	h := newHelm(t, 4)
	var without objects
	all := h.renderPlatform(t, "gke", "--set-json", `handlers={"udev":{"priorityClassName":"system-node-critical"}}`)
	for _, o := range all {
		if o.GetKind() != "ResourceQuota" {
			without = append(without, o)
		}
	}
	refused := map[string]bool{}
	for _, pod := range all.pods(t) {
		quotaTakes(t, all, pod)
		refused[pod.Name] = quotaAdmits(t, without, pod) != nil
	}
	for _, name := range []string{
		"kubecri", "kube-scheduler", "kubeslot-controller", "kubeslot-udev-discovery", "uninstall-node",
	} {
		if !refused[name] {
			t.Errorf("without a ResourceQuota GKE takes %s: the rule is not what it was", name)
		}
	}
	for what, args := range map[string][]string{
		"in kube-system": {"--namespace", "kube-system"},
		"with no critical pods": {
			"--set", "scheduler.priorityClassName=,controller.priorityClassName=,kubecri.priorityClassName=high",
		},
	} {
		for _, o := range h.render(t, args...) {
			if o.GetKind() == "ResourceQuota" {
				t.Errorf("%s there is ResourceQuota %s", what, o.GetName())
			}
		}
	}
}
