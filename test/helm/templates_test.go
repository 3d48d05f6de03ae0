package helm

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestBadValues(t *testing.T) {
	h := newHelm(t, 4)
	for _, tc := range []struct{ set, want string }{
		{"kubecri.runtime.preset=docker", "'/kubecri/runtime/preset': value must be one of 'containerd'"},
		{"scheduler.name=default-scheduler", "/scheduler/name"},
		{"scheduler.otherSchedulers=refuse", "'/scheduler/otherSchedulers': value must be one of 'Refuse', 'Mutate', 'Ignore'"},
		{"scheduler.pluginConfig=x", "'/scheduler/pluginConfig': got string, want array"},
		{"scheduler.pluginConfig[0].name=ConfigurationResources",
			"'/scheduler/pluginConfig/0': missing property 'args'"},
		{"scheduler.clientConnection.kubeconfig=/x", "additional properties 'kubeconfig' not allowed"},
		{"kubecri.allowedPaths=/dev", "'/kubecri/allowedPaths': got string, want array"},
		{"controller.replica=3", "additional properties 'replica' not allowed"},
		{"controller.ui.enabled=true", "controller.ui is ui, with the same keys"},
		{"controller.replicas=0", "'/controller/replicas': minimum: got 0, want 1"},
		{"controller.brokerPriorityClass.value=2000000000", "'/controller/brokerPriorityClass/value': maximum"},
		{"image.registry=", "image.registry is not set: make push REGISTRY="},
		{"image.registry=reg.example/", "/image/registry"},
		{"kubcri.enabled=false", "additional properties 'kubcri' not allowed"},
		{"crds.kep=false", "additional properties 'kep' not allowed"},
		{"handlers.onvfi.env=", "additional properties 'onvfi' not allowed"},
		{"scheduler.podLabels=x", "'/scheduler/podLabels': got string, want object"},
		{"controller.priorityClassName=1", "'/controller/priorityClassName': got number, want string"},
		{"controller.topologySpreadConstraints=zone",
			"'/controller/topologySpreadConstraints': got string, want array"},
		{"kubecri.image.digest=latest", "'/kubecri/image/digest': 'latest' does not match pattern"},
		{"kubecri.image.tag=v1", "'/kubecri/image': additional properties 'tag' not allowed"},
		{"handlers.udev.updateStrategy=OnDelete", "'/handlers/udev/updateStrategy': got string, want object"},
		{"onvif.configuration.capacity=0", "'/onvif/configuration/capacity': minimum: got 0, want 1"},
		{"onvif.configuration.brokerPod.image.repo=x", "additional properties 'repo' not allowed"},
		{"udev.configuration.enabled=true", "udev.configuration.discoveryDetails.udevRules is empty: which devices?"},
		{"custom.configuration.enabled=true", "custom.configuration.discoveryHandlerName is not set"},
		{"scheduler.otherSchedulers=Mutate", "needs MutatingAdmissionPolicies, which this API server does not have"},
	} {
		out, err := h.try(t, "template", "kubeslot", chart, "--kube-version", "1.37.2", "--set", "image.registry=x", "--set", tc.set)
		if err == nil || !strings.Contains(out, tc.want) {
			t.Errorf("with %s helm says %q, want %q", tc.set, out, tc.want)
		}
	}
	_, err := h.try(t, "template", "kubeslot", chart, "--kube-version", "1.37.2", "--set", "image.registry=x,onvif.configuration.enabled=true,kubecri.builtInHandlers={udev}")
	if want := "no handler onvif runs: put it into kubecri.builtInHandlers or handlers"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("with a Configuration that no handler serves helm says %v, want %q", err, want)
	}
}

func TestKubernetesVersions(t *testing.T) {
	for _, major := range []int{3, 4} {
		t.Run(fmt.Sprint("helm ", major), func(t *testing.T) {
			h := newHelm(t, major)
			for version, want := range map[string]string{
				"1.33.9": "chart requires kubeVersion: >=1.34.0-0 which is incompatible with Kubernetes v1.33.9",
				"1.34.0": "", "1.34.4-eks-99d6cc0": "", "1.35.1-gke.1234": "", "1.37.2+k3s1": "",
			} {
				out, err := h.try(t, "template", "kubeslot", chart, "--kube-version", version, "--set", "image.registry=x")
				if (err == nil) != (want == "") || !strings.Contains(out, want) {
					t.Errorf("for Kubernetes %s: %v, want %q", version, err, want)
				}
			}
		})
	}
}

// Users of helm 3 and of helm 4 get the same.
func TestHelm3(t *testing.T) {
	three, four := newHelm(t, 3), newHelm(t, 4)
	for _, h := range []helm{three, four} {
		if out, err := h.try(t, "lint", "--strict", chart, "--kube-version", "1.37.2", "--set", "image.registry=reg.example/k"); err != nil {
			t.Errorf("%s: %v\n%s", h.program, err, out)
		}
	}
	values := []string{"--set", "udev.configuration.enabled=true,udev.configuration.discoveryDetails.udevRules[0]=KERNEL==\"video0\"",
		"--set-json", `handlers={"udev":{},"debug-echo":null}`, "--set", "networkPolicy.enabled=true"}
	sorted := func(all objects) objects {
		slices.SortStableFunc(all, func(a, b *unstructured.Unstructured) int { return strings.Compare(key(a), key(b)) })
		return all
	}
	if diff := cmp.Diff(sorted(four.render(t, values...)), sorted(three.render(t, values...))); diff != "" {
		t.Errorf("helm 4 and helm 3 make other objects (-4 +3):\n%s", diff)
	}
}

func TestRuntimePresets(t *testing.T) {
	h := newHelm(t, 4)
	for name, tc := range map[string]struct {
		set          string
		runtime, nri string
		folders      []string
	}{
		"containerd": {"preset=containerd", "/run/containerd/containerd.sock", "/var/run/nri/nri.sock", []string{"/run/containerd", "/var/run/nri"}},
		"CRI-O":      {"preset=crio", "/var/run/crio/crio.sock", "/var/run/nri/nri.sock", []string{"/var/run/crio", "/var/run/nri"}},
		"k3s, RKE2":  {"preset=k3s", "/run/k3s/containerd/containerd.sock", "/var/run/nri/nri.sock", []string{"/run/k3s/containerd", "/var/run/nri"}},
		"MicroK8s":   {"preset=microk8s", "/var/snap/microk8s/common/run/containerd.sock", "/var/run/nri/nri.sock", []string{"/var/snap/microk8s/common/run", "/var/run/nri"}},
		"by hand":    {"socket=/a/b.sock,kubecri.runtime.nriSocket=/a/nri.sock", "/a/b.sock", "/a/nri.sock", []string{"/a"}},
	} {
		t.Run(name, func(t *testing.T) {
			kubecri := h.render(t, "--set", "kubecri.runtime."+tc.set).get(t, "DaemonSet", "kubecri")
			args := fmt.Sprint(container(kubecri)["args"])
			for _, want := range []string{"--runtime-endpoint=unix://" + tc.runtime + " ", "--nri-socket=" + tc.nri + " "} {
				if !strings.Contains(args, want) {
					t.Errorf("kubecri runs with %s, want %s", args, want)
				}
			}
			mounted := map[string]bool{}
			for _, m := range container(kubecri)["volumeMounts"].([]any) {
				mounted[m.(map[string]any)["mountPath"].(string)] = true
			}
			for _, folder := range tc.folders {
				if !mounted[folder] {
					t.Errorf("%s is not mounted: %v", folder, slices.Sorted(maps.Keys(mounted)))
				}
			}
		})
	}
}

// Brokers have a PriorityClass when it has a name, and the chart makes it unless told not to.
func TestBrokerPriorityClass(t *testing.T) {
	h := newHelm(t, 4)
	for set, want := range map[string]struct{ argument, class bool }{
		"controller.replicas=1":                   {},
		"controller.brokerPriorityClass.name=low": {true, true},
		"controller.brokerPriorityClass.name=low,controller.brokerPriorityClass.create=false": {argument: true},
	} {
		all := h.render(t, "--set", set)
		args := fmt.Sprint(container(all.get(t, "Deployment", "kubeslot-controller"))["args"])
		if got := strings.Contains(args, "--broker-priority-class=low"); got != want.argument {
			t.Errorf("with %s the controller runs with %s", set, args)
		}
		at := slices.IndexFunc(all, func(o *unstructured.Unstructured) bool { return o.GetKind() == "PriorityClass" })
		if (at >= 0) != want.class {
			t.Errorf("with %s there is a PriorityClass: %t", set, at >= 0)
		}
		if at >= 0 && (all[at].GetName() != "low" || fmt.Sprint(all[at].Object["value"]) != "-10" || all[at].Object["preemptionPolicy"] != "Never") {
			t.Errorf("%v", all[at].Object)
		}
	}
}

func TestWhereImagesComeFrom(t *testing.T) {
	h := newHelm(t, 4)
	all := h.render(t, "--set", "image.registry=,global.imageRegistry=mirror.example/k,image.tag=v9,image.plugins=true",
		"--set", "imagePullSecrets[0]=one,imagePullSecrets[1].name=two,global.imagePullSecrets[0]=three",
		"--set", "pluginDirectories.devices=/opt/devices,ui.enabled=true",
		"--set-json", `handlers={"udev":{}}`)
	seen := 0
	for _, o := range all {
		image, _ := container(o)["image"].(string)
		if image == "" {
			continue
		}
		seen++
		want := map[string]string{"kubecri": "kubecri:v9-plugins", "kube-scheduler": "kube-scheduler:v9-plugins",
			"kubeslot-controller": "controller:v9", "kubeslot-ui": "kubeslot-ui:v9",
			"kubeslot-udev-discovery": "udev-discovery:v9", "kubeslot-test": "chart-hooks:v9", "kubeslot-uninstall": "chart-hooks:v9"}[o.GetName()]
		if image != "mirror.example/k/"+want {
			t.Errorf("%s has image %s, want %s", key(o), image, want)
		}
		secrets := field(o, "spec", "template", "spec", "imagePullSecrets")
		if o.GetKind() == "Pod" {
			secrets = field(o, "spec", "imagePullSecrets")
		}
		if diff := cmp.Diff([]any{map[string]any{"name": "one"}, map[string]any{"name": "two"}, map[string]any{"name": "three"}}, secrets); diff != "" {
			t.Errorf("pull secrets of %s (-want +got):\n%s", key(o), diff)
		}
	}
	if seen != 7 {
		t.Errorf("%d objects have an image, want 7", seen)
	}
	if args := fmt.Sprint(container(all.get(t, "DaemonSet", "kubecri"))["args"]); !strings.Contains(args, "--cridevices=/opt/devices") {
		t.Errorf("kubecri runs with %s, want its plugins from /opt/devices", args)
	}
}

func TestNetworkPolicies(t *testing.T) {
	h := newHelm(t, 4)
	if all := h.render(t); all.has("NetworkPolicy", "kubeslot-controller") {
		t.Error("there are NetworkPolicies that nobody asked for")
	}
	all := h.render(t, "--set-json", `networkPolicy={"enabled":true,"metricsFrom":[{"namespaceSelector":{"matchLabels":{"a":"b"}}}]}`)
	ports := map[string]bool{}
	for _, name := range []string{"kubeslot-controller", "kubeslot-scheduler"} {
		p := all.get(t, "NetworkPolicy", name)
		selected := field(p, "spec", "podSelector", "matchLabels", "app.kubernetes.io/name")
		pods := all.get(t, "Deployment", map[string]string{"kubeslot-controller": "kubeslot-controller", "kubeslot-scheduler": "kube-scheduler"}[name])
		if has := field(pods, "spec", "template", "metadata", "labels", "app.kubernetes.io/name"); has != selected {
			t.Errorf("%s selects pods of %v, and its Deployment's are of %v", name, selected, has)
		}
		for _, rule := range field(p, "spec", "ingress").([]any) {
			for _, port := range rule.(map[string]any)["ports"].([]any) {
				ports[port.(map[string]any)["port"].(string)] = true
			}
		}
		first := field(p, "spec", "ingress").([]any)[0].(map[string]any)
		if fmt.Sprint(first["from"]) != "[map[namespaceSelector:map[matchLabels:map[a:b]]]]" {
			t.Errorf("%s lets in %v", name, first["from"])
		}
		// Ports that are probed alone need no rule.
		for _, port := range container(pods)["ports"].([]any) {
			if name := port.(map[string]any)["name"].(string); name != "health" && !ports[name] {
				t.Errorf("nobody reaches port %s", name)
			}
		}
	}
}

// What `kubectl apply -k deploy/` installs, the chart installs as well, and no other version
// of it.
func TestKustomizationAndChartAreEqual(t *testing.T) {
	h := newHelm(t, 4)
	var kustomization map[string]any
	if err := yaml.Unmarshal([]byte(readFile(t, root, "deploy/kustomization.yaml")), &kustomization); err != nil {
		t.Fatal(err)
	}
	if keys := slices.Sorted(maps.Keys(kustomization)); !slices.Equal(keys, []string{"apiVersion", "kind", "resources"}) {
		t.Fatalf("the kustomization has %v: this test knows of resources alone", keys)
	}
	rendered := map[string]*unstructured.Unstructured{}
	for _, o := range h.render(t) {
		rendered[key(o)] = plain(o)
	}
	compared := map[string]int{}
	for _, file := range kustomization["resources"].([]any) {
		for _, o := range parse(t, readFile(t, root, "deploy", file.(string))) {
			compared[o.GetKind()]++
			in, ok := rendered[key(o)]
			if !ok {
				t.Errorf("%s of %s is not in the chart", key(o), file)
				continue
			}
			if diff := cmp.Diff(plain(o).Object, in.Object); diff != "" {
				t.Errorf("%s (-deploy/%s +chart):\n%s", key(o), file, diff)
			}
		}
	}
	if compared["CustomResourceDefinition"] != 4 || compared["ValidatingAdmissionPolicy"] < 5 || compared["ClusterRole"] < 5 {
		t.Errorf("compared were only %v", compared)
	}
	named := regexp.MustCompile(`[a-z-]*kubeslot-system`)
	for _, namespace := range []string{"elsewhere", "my-kubeslot-system"} {
		for _, o := range h.render(t, "--namespace", namespace) {
			text, err := yaml.Marshal(o.Object)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range named.FindAllString(string(text), -1) {
				if name != namespace {
					t.Errorf("in namespace %s %s names %s", namespace, key(o), name)
				}
			}
		}
	}
}

// plain is the object without what helm and the chart add to its metadata, and without
// where its webhook is: a Service in the chart, else the API server's own host.
func plain(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	annotations, labels := o.GetAnnotations(), o.GetLabels()
	maps.DeleteFunc(annotations, func(k, _ string) bool { return strings.HasPrefix(k, "helm.sh/") })
	maps.DeleteFunc(labels, func(k, _ string) bool {
		return strings.HasPrefix(k, "app.kubernetes.io/") || strings.HasPrefix(k, "helm.sh/")
	})
	for field, values := range map[string]map[string]string{"annotations": annotations, "labels": labels} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
		for k, v := range values {
			_ = unstructured.SetNestedField(o.Object, v, "metadata", field, k)
		}
	}
	if o.GetKind() == "ValidatingWebhookConfiguration" {
		for _, webhook := range o.Object["webhooks"].([]any) {
			delete(webhook.(map[string]any), "clientConfig")
		}
	}
	return o
}

func TestCRDsStay(t *testing.T) {
	h := newHelm(t, 4)
	for keep, want := range map[string]any{"true": "keep", "false": nil} {
		count := 0
		for _, o := range h.render(t, "--set", "crds.keep="+keep) {
			if o.GetKind() == "CustomResourceDefinition" {
				count++
				if got := field(o, "metadata", "annotations", "helm.sh/resource-policy"); got != want {
					t.Errorf("with crds.keep=%s %s has the policy %v", keep, o.GetName(), got)
				}
			}
		}
		if count != 4 {
			t.Errorf("there are %d CRDs, want 4", count)
		}
	}
	for _, o := range h.render(t, "--set", "crds.install=false") {
		if o.GetKind() == "CustomResourceDefinition" {
			t.Errorf("with crds.install=false there is %s", o.GetName())
		}
	}
}

// A release's chart names its images by their digests, and another version's by its tag.
func TestDigestsOfImages(t *testing.T) {
	h := newHelm(t, 4)
	digest := "sha256:" + strings.Repeat("0", 64)
	for values, want := range map[string]string{
		"":                            ":" + appVersion(t) + "@" + digest,
		"image.tag=" + appVersion(t):  ":" + appVersion(t) + "@" + digest,
		"image.tag=v9":                ":v9",
		"image.plugins=true":          ":" + appVersion(t) + "-plugins",
		"image.digests.kubecri=null":  ":" + appVersion(t),
		"image.registry=mirror.local": ":" + appVersion(t) + "@" + digest,
	} {
		all := h.render(t, "--set", "image.digests.kubecri="+digest, "--set", values)
		image, _ := container(all.get(t, "DaemonSet", "kubecri"))["image"].(string)
		if _, got, _ := strings.Cut(image, "/kubecri"); got != want {
			t.Errorf("with %s kubecri's image is %s, want …%s", values, image, want)
		}
	}
}

// appVersion is the chart's.
func appVersion(t *testing.T) string {
	t.Helper()
	var c struct{ AppVersion string }
	if err := yaml.Unmarshal([]byte(readFile(t, chart, "Chart.yaml")), &c); err != nil {
		t.Fatal(err)
	}
	return c.AppVersion
}
