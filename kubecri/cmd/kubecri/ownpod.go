package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"

	apitypes "k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// serviceAccount is where the kubelet puts the files of a pod's ServiceAccount.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// ownPod is the pod in which this process runs, by the files of its ServiceAccount. The namespace is ""
// if it runs in none, and the name if the token is not one for a pod.
func ownPod(dir string) (own apitypes.NamespacedName) {
	namespace, err := os.ReadFile(filepath.Join(dir, "namespace"))
	if err != nil {
		return own
	}
	own.Namespace = strings.TrimSpace(string(namespace))
	token, _ := os.ReadFile(filepath.Join(dir, "token")) // the claims are between two dots
	_, rest, _ := strings.Cut(string(token), ".")
	text, _, _ := strings.Cut(rest, ".")
	var claims struct {
		Kubernetes struct{ Pod struct{ Name string } } `json:"kubernetes.io"`
	}
	if data, err := base64.RawURLEncoding.DecodeString(text); err == nil && json.Unmarshal(data, &claims) == nil {
		own.Name = claims.Kubernetes.Pod.Name
	}
	return own
}

// kubecriNamespace returns what the node is to say of the pod in which its kubecri runs: its namespace,
// "" for none. The scheduler waits for a Ready pod there that has kubecri's label, so that without the
// label the node would get no pods with devices. Pods have been read when it is asked.
func kubecriNamespace(own apitypes.NamespacedName, pods corelisters.PodLister) func(context.Context) string {
	var warn sync.Once
	return func(ctx context.Context) string {
		pod, err := pods.Pods(own.Namespace).Get(own.Name)
		if err != nil || v1alpha1.IsKubecri(pod) {
			return own.Namespace
		}
		warn.Do(func() {
			klog.FromContext(ctx).Info("Warning: kubecri's pod has no label app.kubernetes.io/name=kubecri, so pods "+
				"with devices are placed on the node also while kubecri is away; see docs/nri.md", "pod", own)
		})
		return ""
	}
}
