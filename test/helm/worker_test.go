package helm

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The discovery worker's container has no user, capability, token, file of the node or environment of
// kubecri's: they share the directory of a socket, and nothing else.
func TestDiscoveryWorkersContainer(t *testing.T) {
	h := newHelm(t, 4)
	for name, values := range map[string][]string{
		"the default": nil,
		"everything set": {"--set-json", `kubecri={"mode":"device-plugin","env":[{"name":"A","value":"b"}],"hostPaths":["/opt"]}`,
			"--set", "image.plugins=true", "--set", "scheduler.enabled=false"},
	} {
		t.Run(name, func(t *testing.T) {
			all := h.render(t, values...)
			kubecri, worker := containerOf(t, all, "kubecri"), containerOf(t, all, "discovery")
			const socket = "/run/kubecri-discovery/worker.sock"
			if !slices.Contains(kubecri["args"].([]any), any("--discovery-worker="+socket)) {
				t.Errorf("kubecri has the arguments %v, want --discovery-worker=%s", kubecri["args"], socket)
			}
			if diff := cmp.Diff(kubecri["args"], worker["args"]); diff != "" {
				t.Errorf("the worker's arguments (-kubecri's +got):\n%s", diff)
			}
			if command := worker["command"].([]any); !slices.Equal(command, []any{"/kubecri", "discover"}) {
				t.Errorf("the worker has the command %v", command)
			}
			if worker["image"] != kubecri["image"] {
				t.Errorf("the worker has image %v, kubecri %v", worker["image"], kubecri["image"])
			}
			if env := worker["env"]; env != nil {
				t.Errorf("the worker has the environment %v", env)
			}
			is := worker["securityContext"].(map[string]any)
			for key, want := range map[string]any{
				"runAsUser": int64(65534), "runAsGroup": int64(65534), "runAsNonRoot": true,
				"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "privileged": nil} {
				if number, ok := is[key].(float64); ok {
					is[key] = int64(number)
				}
				if is[key] != want {
					t.Errorf("%s is %v, want %v", key, is[key], want)
				}
			}
			if drop := is["capabilities"].(map[string]any)["drop"].([]any); !slices.Equal(drop, []any{"ALL"}) {
				t.Errorf("the worker drops the capabilities %v, want ALL", drop)
			}
			// A volume in the place of the token keeps that from being mounted.
			want := map[string]string{path.Dir(socket): "emptyDir",
				"/var/run/secrets/kubernetes.io/serviceaccount": "emptyDir read-only"}
			if diff := cmp.Diff(want, mountsOf(t, all, worker)); diff != "" {
				t.Errorf("the worker's mounts (-want +got):\n%s", diff)
			}
			mounts := mountsOf(t, all, kubecri)
			if mounts[path.Dir(socket)] != "emptyDir read-only" {
				t.Errorf("kubecri has the mounts %v, want the volume of the socket", mounts)
			}
		})
	}
}

func containerOf(t *testing.T, all objects, name string) map[string]any {
	t.Helper()
	list := field(all.get(t, "DaemonSet", "kubecri"), "spec", "template", "spec", "containers").([]any)
	for _, c := range list {
		if c := c.(map[string]any); c["name"] == name {
			return c
		}
	}
	t.Fatalf("kubecri's pods have no container %s", name)
	return nil
}

// mountsOf are the kinds of a container's volumes, by where they are mounted.
func mountsOf(t *testing.T, all objects, container map[string]any) map[string]string {
	t.Helper()
	kinds := map[any]string{}
	for _, v := range field(all.get(t, "DaemonSet", "kubecri"), "spec", "template", "spec", "volumes").([]any) {
		for key := range v.(map[string]any) {
			if key != "name" {
				kinds[v.(map[string]any)["name"]] = key
			}
		}
	}
	mounts := map[string]string{}
	for _, m := range container["volumeMounts"].([]any) {
		m := m.(map[string]any)
		kind := kinds[m["name"]]
		if m["readOnly"] == true {
			kind += " read-only"
		}
		mounts[m["mountPath"].(string)] = strings.TrimSpace(kind)
	}
	return mounts
}
