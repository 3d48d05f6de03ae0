package helm

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// constraints are SecurityContextConstraints of OpenShift, and what they refuse, as in
// https://github.com/openshift/apiserver-library-go/blob/1a630ad7/pkg/securitycontextconstraints/sccmatching/provider.go
// and https://docs.redhat.com/en/documentation/openshift_container_platform/4.20/html/authentication_and_authorization/managing-pod-security-policies
// for the fields that the chart's pods have.
type constraints struct {
	AllowHostDirVolumePlugin bool
	AllowHostNetwork         bool
	AllowHostPorts           bool
	AllowHostPID             bool
	AllowHostIPC             bool
	AllowPrivilegedContainer bool
	AllowPrivilegeEscalation bool
	ReadOnlyRootFilesystem   bool
	AllowedCapabilities      []corev1.Capability
	RunAsUser, FSGroup       strategy
	SELinuxContext           strategy `json:"seLinuxContext"`
	SeccompProfiles          []string
	Volumes                  []string
	Users                    []string
}

// strategy is RunAsAny, or that the namespace decides: then a pod must not.
type strategy struct{ Type string }

// What OpenShift has in every cluster:
// https://github.com/openshift/cluster-kube-apiserver-operator/tree/becb0af3/bindata/bootkube/scc-manifests
var (
	// restrictedV2 is for everybody.
	restrictedV2 = constraints{
		AllowedCapabilities: []corev1.Capability{"NET_BIND_SERVICE"},
		RunAsUser:           strategy{"MustRunAsRange"}, FSGroup: strategy{"MustRunAs"},
		SELinuxContext:  strategy{"MustRunAs"},
		SeccompProfiles: []string{"runtime/default"},
		Volumes: []string{
			"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected",
			"secret",
		},
	}
	// privileged is for cluster administrators and for those whom they give it.
	privileged = constraints{
		AllowHostDirVolumePlugin: true, AllowHostNetwork: true, AllowHostPorts: true, AllowHostPID: true,
		AllowHostIPC:             true,
		AllowPrivilegedContainer: true, AllowPrivilegeEscalation: true, AllowedCapabilities: []corev1.Capability{"*"},
		RunAsUser: strategy{"RunAsAny"}, FSGroup: strategy{"RunAsAny"}, SELinuxContext: strategy{"RunAsAny"},
		SeccompProfiles: []string{"*"}, Volumes: []string{"*"},
	}
)

// refusals are what of the pod the constraints refuse.
func (c *constraints) refusals(spec *corev1.PodSpec) []string {
	var all []string
	refuse := func(when bool, format string, args ...any) {
		if when {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	refuse(spec.HostNetwork && !c.AllowHostNetwork, "hostNetwork")
	refuse(spec.HostPID && !c.AllowHostPID, "hostPID")
	refuse(spec.HostIPC && !c.AllowHostIPC, "hostIPC")
	for _, v := range spec.Volumes {
		kind := volumeKind(v)
		listed := slices.Contains(c.Volumes, "*") || slices.Contains(c.Volumes, kind)
		refuse(!listed || kind == "hostPath" && !c.AllowHostDirVolumePlugin, "volume %s is a %s", v.Name, kind)
	}
	pod := spec.SecurityContext
	if pod == nil {
		pod = &corev1.PodSecurityContext{}
	}
	refuse(pod.RunAsUser != nil && c.RunAsUser.Type != "RunAsAny", "runAsUser of the pod")
	refuse(pod.FSGroup != nil && c.FSGroup.Type != "RunAsAny", "fsGroup")
	refuse(pod.SELinuxOptions != nil && c.SELinuxContext.Type != "RunAsAny", "seLinuxOptions of the pod")
	refuse(!c.takesSeccomp(pod.SeccompProfile), "seccompProfile of the pod")
	for i := range spec.Containers {
		all = append(all, c.refusalsOf(&spec.Containers[i])...)
	}
	return all
}

func (c *constraints) refusalsOf(container *corev1.Container) []string {
	var all []string
	refuse := func(when bool, what string) {
		if when {
			all = append(all, what+" of container "+container.Name)
		}
	}
	for _, port := range container.Ports {
		refuse(port.HostPort != 0 && !c.AllowHostPorts, "hostPort")
	}
	sc := container.SecurityContext
	if sc == nil {
		return all
	}
	is := func(b *bool) bool { return b != nil && *b }
	refuse(is(sc.Privileged) && !c.AllowPrivilegedContainer, "privileged")
	refuse(is(sc.AllowPrivilegeEscalation) && !c.AllowPrivilegeEscalation, "allowPrivilegeEscalation")
	writable := sc.ReadOnlyRootFilesystem != nil && !*sc.ReadOnlyRootFilesystem
	refuse(writable && c.ReadOnlyRootFilesystem, "readOnlyRootFilesystem")
	refuse(sc.RunAsUser != nil && c.RunAsUser.Type != "RunAsAny", "runAsUser")
	refuse(sc.SELinuxOptions != nil && c.SELinuxContext.Type != "RunAsAny", "seLinuxOptions")
	refuse(!c.takesSeccomp(sc.SeccompProfile), "seccompProfile")
	if sc.Capabilities != nil {
		for _, added := range sc.Capabilities.Add {
			allowed := slices.Contains(c.AllowedCapabilities, "*") || slices.Contains(c.AllowedCapabilities, added)
			refuse(!allowed, "capability "+string(added))
		}
	}
	return all
}

// takesSeccomp reports whether the profile may be; without one the constraints set theirs.
func (c *constraints) takesSeccomp(p *corev1.SeccompProfile) bool {
	return p == nil || slices.Contains(c.SeccompProfiles, "*") ||
		p.Type == corev1.SeccompProfileTypeRuntimeDefault && slices.Contains(c.SeccompProfiles, "runtime/default")
}

func volumeKind(v corev1.Volume) string {
	fields, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(&v)
	delete(fields, "name")
	for kind := range fields {
		return kind
	}
	return ""
}

// OpenShift takes each pod: those that work on nodes by the chart's own constraints, which are narrower
// than privileged, and all others by restricted-v2.
func TestOpenShift(t *testing.T) {
	values := append([]string{"--set-json", `handlers={"udev":{},"onvif":{}}`}, withPlugins...)
	all := newHelm(t, 4).renderPlatform(t, "openshift", values...)
	own := map[string][]constraints{} // by when helm creates them
	for _, o := range all {
		if o.GetKind() == "SecurityContextConstraints" {
			text, err := json.Marshal(o.Object)
			var c constraints
			if err := errors.Join(err, json.Unmarshal(text, &c)); err != nil {
				t.Fatal(err)
			}
			phase := o.GetAnnotations()["helm.sh/hook"]
			own[phase] = append(own[phase], c)
		}
	}
	for _, pod := range all.pods(t) {
		account := "system:serviceaccount:" + pod.Namespace + ":" + pod.Spec.ServiceAccountName
		creator := "system:serviceaccount:" + pod.Namespace + ":" + pod.creator
		refused := restrictedV2.refusals(&pod.Spec)
		if !worksOnNodes(pod.Name) {
			if len(refused) > 0 {
				t.Errorf("restricted-v2 refuses %s: %s", pod.Name, strings.Join(refused, ", "))
			}
			continue
		}
		if len(refused) == 0 {
			t.Errorf("restricted-v2 takes %s: the chart's own constraints are needless", pod.Name)
		}
		if refused := privileged.refusals(&pod.Spec); len(refused) > 0 {
			t.Errorf("privileged refuses %s: %s", pod.Name, strings.Join(refused, ", "))
		}
		taken := false
		var why []string
		for _, c := range own[pod.phase] {
			if slices.Contains(c.Users, account) || slices.Contains(c.Users, creator) {
				refused := c.refusals(&pod.Spec)
				taken = taken || len(refused) == 0
				why = append(why, refused...)
			}
		}
		if !taken {
			t.Errorf("no constraints that %s may use take its pod: %s", pod.Name, strings.Join(why, ", "))
		}
	}
	for _, monitor := range all {
		if monitor.GetKind() != "ServiceMonitor" {
			continue
		}
		spec := fmt.Sprint(monitor.Object["spec"])
		if strings.Contains(spec, "bearerTokenFile") || strings.Contains(spec, "caFile") {
			t.Errorf("ServiceMonitor %s names files of Prometheus' pod: user workload monitoring refuses it",
				monitor.GetName())
		}
	}
}
