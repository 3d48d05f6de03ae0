package helm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// withPlugins are values with plugins of both halves.
var withPlugins = []string{
	"--set-json", `plugins.devices=[
		{"name":"widgets","image":{"repository":"reg.example/widgets","tag":"v1"},"args":["device"],
		 "hostPaths":["/opt/widgets"],"updateStrategy":{"type":"OnDelete"}},
		{"name":"example.com","image":{"repository":"reg.example/other","digest":"sha256:` + oneDigest + `"},
		 "policy":"ignore"}]`,
	"--set-json", `plugins.schedulers=[{"name":"example.com","image":{"repository":"reg.example/widgets","tag":"v1"},
		"args":["scheduler"],"env":[{"name":"A","value":"b"}]}]`,
}

var oneDigest = strings.Repeat("1", 64)

// Nothing of plugins is rendered without any.
func TestNoPlugins(t *testing.T) {
	for _, o := range newHelm(t, 4).render(t) {
		if strings.Contains(fmt.Sprint(o.Object), "plugin-sockets") || strings.Contains(o.GetName(), "plugin-") {
			t.Errorf("without plugins %s has something of them", key(o))
		}
	}
}

// Host and plugins of a half share one directory and one user, and nothing of the host's own.
func TestPlugins(t *testing.T) {
	pods := map[string]corev1.Pod{}
	values := append([]string{"--set", "plugins.devices[1].securityContext.privileged=true"}, withPlugins...)
	all := newHelm(t, 4).render(t, values...)
	for _, pod := range all.pods(t) {
		pods[pod.Name] = pod.Pod
	}
	folder := func(half string) string { return "/run/kubeslot/plugins/" + half }
	for host, want := range map[string][]string{
		"kubecri": {"--plugin-sockets=" + folder("devices"),
			"--plugin-policy=example.com=ignore,widgets=required"},
		"kube-scheduler": {"--plugin-sockets=" + folder("schedulers"),
			"--plugin-policy=example.com=required"},
	} {
		c := namedContainer(t, pods[host], host)
		for _, arg := range want {
			if !slices.Contains(c.Args, arg) {
				t.Errorf("%s runs with %q, want %s", host, c.Args, arg)
			}
		}
	}
	wantVolume(t, pods["kubecri"], "kubecri", folder("devices"), "hostPath "+folder("devices"))
	wantVolume(t, pods["kube-scheduler"], "kube-scheduler", folder("schedulers"), "emptyDir")

	widgets := pods["kubeslot-plugin-widgets"]
	wantVolume(t, widgets, "plugin", folder("devices"), "hostPath "+folder("devices"))
	wantVolume(t, widgets, "plugin", "/opt/widgets", "hostPath /opt/widgets")
	c := namedContainer(t, widgets, "plugin")
	if c.Image != "reg.example/widgets:v1" || !slices.Equal(c.Args, []string{"device"}) {
		t.Errorf("the plugin runs %s %q", c.Image, c.Args)
	}
	if auto := widgets.Spec.AutomountServiceAccountToken; auto == nil || *auto {
		t.Error("a device plugin has a ServiceAccount token")
	}
	for what, diff := range map[string]string{
		"node selector": cmp.Diff(pods["kubecri"].Spec.NodeSelector, widgets.Spec.NodeSelector),
		"tolerations":   cmp.Diff(pods["kubecri"].Spec.Tolerations, widgets.Spec.Tolerations),
		"affinity":      cmp.Diff(pods["kubecri"].Spec.Affinity, widgets.Spec.Affinity),
	} {
		if diff != "" {
			t.Errorf("%s of the plugin's pods (-kubecri's +got):\n%s", what, diff)
		}
	}
	for name, want := range map[string]string{"widgets": "map[type:OnDelete]", "example.com": "map[rollingUpdate:"} {
		got := fmt.Sprint(field(all.get(t, "DaemonSet", "kubeslot-plugin-"+name), "spec", "updateStrategy"))
		if !strings.HasPrefix(got, want) {
			t.Errorf("update strategy %s of plugin %s, want %s", got, name, want)
		}
	}
	other := namedContainer(t, pods["kubeslot-plugin-example.com"], "plugin")
	if want := "reg.example/other@sha256:" + oneDigest; other.Image != want {
		t.Errorf("image %s, want %s", other.Image, want)
	}
	if is := other.SecurityContext; !*is.Privileged || !*is.AllowPrivilegeEscalation || !*is.ReadOnlyRootFilesystem {
		t.Errorf("security context %+v, want the values' privileged and the defaults", is)
	}

	scheduler := pods["kube-scheduler"]
	if len(scheduler.Spec.InitContainers) > 0 {
		t.Error("the scheduler does not start without its plugins: they are init containers")
	}
	wantVolume(t, scheduler, "plugin-example-com", folder("schedulers"), "emptyDir")
	const token = "/var/run/secrets/kubernetes.io/serviceaccount"
	wantVolume(t, scheduler, "plugin-example-com", token, "emptyDir read-only")
	c = namedContainer(t, scheduler, "plugin-example-com")
	if c.SecurityContext.RunAsUser == nil || *c.SecurityContext.RunAsUser != 65532 {
		t.Errorf("the scheduler's plugin is no process of its user: %+v", c.SecurityContext)
	}
}

func TestBadPlugins(t *testing.T) {
	h := newHelm(t, 4)
	const image = `"image":{"repository":"r","tag":"v1"}`
	for _, tc := range []struct{ half, plugins, want string }{
		{"devices", `{"name":"a"}`, "'/plugins/devices/0': missing property 'image'"},
		{"devices", `{` + image + `}`, "'/plugins/devices/0': missing property 'name'"},
		{"devices", `{"name":"A",` + image + `}`, "'/plugins/devices/0/name': 'A' does not match pattern"},
		{"devices", `{"name":"a","image":{"repository":"r"}}`, "'/plugins/devices/0/image': missing property 'tag'"},
		{"devices", `{"name":"a","hostPaths":["dev"],` + image + `}`, "'/plugins/devices/0/hostPaths/0': 'dev'"},
		{"devices", `{"name":"a",` + image + `},{"name":"a",` + image + `}`, "plugins.devices has the name a twice"},
		{"schedulers", `{"name":"a","policy":"maybe",` + image + `}`, "'/plugins/schedulers/0/policy': value must be one of"},
		{"schedulers", `{"name":"a","hostPaths":["/a"],` + image + `}`, "additional properties 'hostPaths' not allowed"},
		{"controllers", "", "additional properties 'controllers' not allowed"},
	} {
		out, err := h.try(t, "template", "kubeslot", chart, "--kube-version", "1.37.2", "--set", "image.registry=x",
			"--set-json", fmt.Sprintf("plugins.%s=[%s]", tc.half, tc.plugins))
		if err == nil || !strings.Contains(out, tc.want) {
			t.Errorf("with %s %s helm says %q, want %q", tc.half, tc.plugins, out, tc.want)
		}
	}
}

// The NVIDIA plugin's configuration is a ConfigMap's, and CONFIG_FILE says where.
func TestGPUConfigMap(t *testing.T) {
	for _, pod := range newHelm(t, 4).render(t, "--set", "kubecri.gpuConfigMap=nvidia-plugin-configs").pods(t) {
		if pod.Name != "kubecri" {
			continue
		}
		env := namedContainer(t, pod.Pod, "kubecri").Env
		i := slices.IndexFunc(env, func(v corev1.EnvVar) bool { return v.Name == "CONFIG_FILE" })
		if i < 0 {
			t.Fatalf("kubecri has no CONFIG_FILE in %v", env)
		}
		wantVolume(t, pod.Pod, "kubecri", env[i].Value, "ConfigMap nvidia-plugin-configs")
		return
	}
	t.Error("there is no kubecri")
}

func namedContainer(t *testing.T, pod corev1.Pod, name string) corev1.Container {
	t.Helper()
	i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("pod %q has no container %s", pod.Name, name)
	}
	return pod.Spec.Containers[i]
}

// wantVolume checks what is mounted at a path of the container: the kind of the volume, and the node's path.
func wantVolume(t *testing.T, pod corev1.Pod, container, path, want string) {
	t.Helper()
	got := map[string]string{}
	for _, m := range namedContainer(t, pod, container).VolumeMounts {
		for _, v := range pod.Spec.Volumes {
			if v.Name != m.Name {
				continue
			}
			switch {
			case v.HostPath != nil:
				got[m.MountPath] = "hostPath " + v.HostPath.Path
			case v.ConfigMap != nil && m.ReadOnly:
				got[m.MountPath] = "ConfigMap " + v.ConfigMap.Name
			case v.EmptyDir != nil && m.ReadOnly:
				got[m.MountPath] = "emptyDir read-only"
			case v.EmptyDir != nil:
				got[m.MountPath] = "emptyDir"
			}
		}
	}
	if got[path] != want {
		t.Errorf("container %s of %s has at %s %q, want %q; there is %v",
			container, pod.Name, path, got[path], want, slices.Sorted(maps.Keys(got)))
	}
}
