package devicepluginmode

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/test/await"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// run runs f until the returned function is called.
func run(t *testing.T, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	ended := make(chan struct{})
	go func() { defer close(ended); f(ctx) }()
	return func() { cancel(); <-ended }
}

// A process that starts while the API server is away goes on from the checkpoint: it reports
// the ids that pods have to the kubelet, which starts their containers again and gets their devices.
func TestStartWithoutTheAPIServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint")
	keep := func(c *Config) { c.Checkpoint = path }
	former := newRigWith(t, newAPI(), "a", akriv0.ConfigurationSpec{}, keep, "east")
	close(former.read)
	if _, err := former.allocate(t.Context(), cam, []string{"cam-0"}); err != nil {
		t.Fatal(err)
	}
	used := former.holds("")[0].Slot
	former.ran = true
	kill := run(t, former.claims.Run)
	await.That(t, "the checkpoint", func() (bool, string) {
		content, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(content), "cam-0"), string(content)
	})
	kill()

	r := newRigWith(t, newAPI(), "a", akriv0.ConfigurationSpec{}, keep)
	r.synced.Store(false)
	r.api.cut = true
	unread := map[cache.Indexer]any{}
	for _, indexer := range []cache.Indexer{r.Configurations.Informer().GetIndexer(), r.Nodes.Informer().GetIndexer()} {
		unread[indexer] = indexer.List()[0]
		if err := indexer.Replace(nil, ""); err != nil {
			t.Fatal(err)
		}
	}
	r.Device = func(ctx context.Context, instance string) (discovery.Device, error) {
		saved, ok := r.NodeClaims().CheckpointedDevice(ctx, instance)
		if !ok {
			<-ctx.Done() // as for what discovery is to find
			return discovery.Device{}, ctx.Err()
		}
		return saved.Device, nil
	}
	r.ran = true
	defer run(t, r.Run)()
	kubelet := startKubelet(t, r.Directory)
	lists := func(want string) {
		t.Helper()
		await.That(t, "the kubelet to know "+want, func() (bool, string) {
			kubelet.mu.Lock()
			defer kubelet.mu.Unlock()
			return kubelet.last["akri.sh/cam"] == want, kubelet.last["akri.sh/cam"]
		})
	}
	lists("cam-0:Healthy")
	if _, known := r.Served(); known {
		t.Error("what is served is known, without the API server: the node's other resources would go")
	}
	answer, err := r.allocate(t.Context(), cam, []string{"cam-0"})
	if err != nil || answer.Envs["URL_"+strings.ToUpper(used.Instance[len("cam-"):])] != "rtsp://east" {
		t.Errorf("the container gets %v, %v", answer, err)
	}
	r.machine.mu.Lock() // the kubelet lists it now
	r.machine.listed = []*podresourcesapi.PodResources{{Name: "p", Namespace: "ns",
		Containers: []*podresourcesapi.ContainerResources{{
			Devices: []*podresourcesapi.ContainerDevices{
				{ResourceName: "akri.sh/cam", DeviceIds: []string{"cam-0"}}}}}}}
	r.machine.mu.Unlock()
	if _, err := r.allocate(t.Context(), cam, []string{"cam-1"}); err == nil {
		t.Error("an id was given that the checkpoint does not have")
	}

	// It is back, with the claim.
	r.api.mu.Lock()
	r.api.cut, r.api.claims = false, former.api.claims
	r.api.mu.Unlock()
	r.shows(r.api.claims[used.String()], false)
	for indexer, obj := range unread {
		if err := indexer.Add(obj); err != nil {
			t.Fatal(err)
		}
	}
	r.synced.Store(true)
	close(r.read)
	await.That(t, "what is served", func() (bool, string) { _, known := r.Served(); return known, "" })
	lists("cam-0:Healthy")
	if usage := r.api.usage(); usage[used.String()] != "C:cam-0:a" {
		t.Errorf("claims %v, want that of the pod", usage)
	}
}
