package version

import "fmt"

// KubernetesMinor is the minor version of Kubernetes 1.x that the programs are made of, and
// OldestKubernetesMinor the oldest whose API servers and kubelets they are tested with: three
// minor versions back, as far as Kubernetes lets a kubelet stay behind its API server. The
// chart, the pages and go.mod say the same, which a test compares.
const (
	KubernetesMinor       = 37
	OldestKubernetesMinor = KubernetesMinor - 3
)

// OlderKubernetes returns the minor versions of Kubernetes that are supported beside the one
// that the programs are made of, such as "1.36", the oldest first.
func OlderKubernetes() []string {
	var versions []string
	for minor := OldestKubernetesMinor; minor < KubernetesMinor; minor++ {
		versions = append(versions, KubernetesVersion(minor))
	}
	return versions
}

// KubernetesVersion returns the version 1.<minor>.
func KubernetesVersion(minor int) string { return fmt.Sprintf("1.%d", minor) }
