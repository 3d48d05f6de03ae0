package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/types/slot"
)

var (
	// exampleImage is what an image of the registries, with its command, is in the examples.
	exampleImage = regexp.MustCompile(`(?m)^( *)image: busybox:.*\n *command: .*$`)
	// exampleScheduler is how the examples name the chart's scheduler. That of this cluster is in the place
	// of the stock one.
	exampleScheduler = regexp.MustCompile(`(?m)^ *schedulerName: kubeslot.*\n`)
)

// example is a file of examples/, with this cluster's scheduler, and the test image in place of images that cannot
// be pulled here. The path is within the repository.
func (r *rig) example(path string) string {
	r.Helper()
	text, err := os.ReadFile(filepath.Join(shared.Config().RepoRoot, path))
	r.check(err)
	text = exampleImage.ReplaceAll(text, []byte("${1}image: "+cluster.AppImage+"\n${1}imagePullPolicy: Never"))
	text = exampleScheduler.ReplaceAll(text, nil)
	if strings.Contains(string(text), "busybox") {
		r.Fatalf("%s has an image without a command in the next line:\n%s", path, text)
	}
	file := filepath.Join(r.TempDir(), filepath.Base(path))
	r.check(os.WriteFile(file, text, 0o600))
	return file
}

// applyExample applies files of a story to the test's namespace.
func (r *rig) applyExample(story string, files ...string) {
	r.Helper()
	args := []string{"apply", "-n", r.ns}
	for _, file := range files {
		args = append(args, "-f", r.example(filepath.Join("examples", story, file)))
	}
	_, err := shared.Kubectl(r.ctx, args...)
	r.check(err)
}

// What the README of shared-cameras says: four brokers, two of each camera, behind three Services, and a pod that
// waits for them.
func TestExampleSharedCameras(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const cameras = "street-cameras"
	r.applyExample("shared-cameras", "cameras.yaml")
	r.await("two Instances", func() (bool, string) {
		in := r.instances(cameras)
		return len(in) == 2, fmt.Sprint(in, r.status(cameras).Problems)
	})
	seen := map[string]int{}
	for _, env := range r.awaitSample(cameras, true, nodeA, nodeB) {
		seen[env["DEBUG_ECHO_DESCRIPTION"]]++
	}
	if want := map[string]int{"gate": 2, "yard": 2}; !maps.Equal(seen, want) {
		t.Errorf("brokers by camera: %v, want %v", seen, want)
	}
	r.applyExample("shared-cameras", "viewer.yaml")
	r.awaitPending("viewer", "short of akri.sh/"+cameras, "0 of 4 slots free")
	r.patchConfiguration(cameras, `{"spec":{"capacity":3}}`)
	r.awaitRunning("viewer")
	r.delete("viewer")
	r.deleteSample(cameras)
}

// What the README of uniqueness says.
func TestExampleUniqueness(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.applyExample("uniqueness", "eyes.yaml", "press.yaml", "pods.yaml")

	r.awaitRunning("pair")
	r.agree("pair", "stereo-eyes", 2)
	instances := map[string]bool{}
	for name := range r.claims("stereo-eyes") {
		s, err := slot.Parse(name)
		r.check(err)
		instances[s.Instance] = true
	}
	if len(instances) != 2 {
		t.Errorf("pair has slots of %v, want two Instances", slices.Sorted(maps.Keys(instances)))
	}
	var eyes []string
	for name, value := range r.env("pair") {
		if strings.HasPrefix(name, "DEBUG_ECHO_DESCRIPTION_") {
			eyes = append(eyes, value)
		}
	}
	if slices.Sort(eyes); !slices.Equal(eyes, []string{"left", "right"}) {
		t.Errorf("pair has the cameras %q", eyes)
	}
	r.awaitPending(
		"three-eyes",
		"too few Instances for akri.sh/stereo-eyes",
		"needs 3 different ones (uniqueDevices), 2 reached",
	)
	r.awaitRunning("batch")
	r.agree("batch", "press", 3)
}

// What the README of namespaces says.
func TestExampleNamespaces(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	pods := r.example("examples/namespaces/pods.yaml")
	_, err := shared.Kubectl(r.ctx, "apply", "-f", r.example("examples/namespaces/namespaces.yaml"))
	r.check(err)
	shop, office := *r, *r
	shop.ns, office.ns = "example-shop", "example-office"
	for _, other := range []*rig{&shop, &office} {
		t.Cleanup(other.cleanUp)
		r.await("the default service account of "+other.ns, func() (bool, string) {
			_, err := kube.CoreV1().ServiceAccounts(other.ns).Get(r.ctx, "default", metav1.GetOptions{})
			return err == nil, fmt.Sprint(err)
		})
	}
	r.applyExample("namespaces", "scanners.yaml")
	_, err = shared.Kubectl(r.ctx, "apply", "-f", pods)
	r.check(err)

	shop.awaitRunning("till")
	shop.agree("till", "scanners", 1)
	office.awaitPending("desk", "pods of namespace example-office may not use akri.sh/scanners")
	label := func(value string) {
		patch := []byte(`{"metadata":{"labels":{"scanners":` + value + `}}}`)
		namespaces := kube.CoreV1().Namespaces()
		_, err := namespaces.Patch(r.ctx, office.ns, "application/merge-patch+json", patch, metav1.PatchOptions{})
		r.check(err)
	}
	label(`"yes"`)
	office.awaitRunning("desk")
	office.agree("desk", "scanners", 1)
	label(`null`)
	if p := office.pod("desk"); p.Status.Phase != v1.PodRunning {
		t.Errorf("desk is %s without the label, want it to keep its slot", p.Status.Phase)
	}
}
