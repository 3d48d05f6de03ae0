package devicepluginmode

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr/funcr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubeslot/kubeslot/test/await"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// fakeKubelet does what a kubelet does at its start: it removes all sockets, makes its
// own, and connects to each plugin that registers.
type fakeKubelet struct {
	pluginapi.UnimplementedRegistrationServer
	t         *testing.T
	directory string
	server    *grpc.Server
	ctx       context.Context
	stop      context.CancelFunc

	mu    sync.Mutex
	first map[string]string // first list of each resource
	last  map[string]string
}

func startKubelet(t *testing.T, directory string) *fakeKubelet {
	t.Helper()
	old, _ := filepath.Glob(filepath.Join(directory, "*.sock"))
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	k := &fakeKubelet{t: t, directory: directory, server: grpc.NewServer(), first: map[string]string{}, last: map[string]string{}}
	k.ctx, k.stop = context.WithCancel(context.Background())
	pluginapi.RegisterRegistrationServer(k.server, k)
	listener, err := net.Listen("unix", filepath.Join(directory, kubeletSocket))
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = k.server.Serve(listener) }()
	t.Cleanup(k.end)
	return k
}

func (k *fakeKubelet) end() {
	k.stop()
	k.server.Stop()
}

func (k *fakeKubelet) Register(_ context.Context, r *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	if r.Version != pluginapi.Version || !r.Options.GetPreferredAllocationAvailable || filepath.Base(r.Endpoint) != r.Endpoint {
		return nil, fmt.Errorf("odd registration %v", r)
	}
	conn, err := grpc.NewClient("unix://"+filepath.Join(k.directory, r.Endpoint), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	go func() {
		defer conn.Close()
		stream, err := pluginapi.NewDevicePluginClient(conn).ListAndWatch(k.ctx, &pluginapi.Empty{})
		if err != nil {
			return
		}
		for {
			list, err := stream.Recv()
			if err != nil {
				return
			}
			var ids []string
			for _, d := range list.Devices {
				ids = append(ids, d.ID+":"+d.Health)
			}
			k.mu.Lock()
			text := strings.Join(ids, " ")
			if _, known := k.first[r.ResourceName]; !known {
				k.first[r.ResourceName] = text
			}
			k.last[r.ResourceName] = text
			k.mu.Unlock()
		}
	}()
	return &pluginapi.Empty{}, nil
}

func (k *fakeKubelet) lists(of map[string]string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return fmt.Sprint(of)
}

// All plugins are known to a kubelet that starts, and to the next one as soon as its socket is seen,
// with the final healths in their first lists; a list follows each change; and a resource
// that is gone has no ids, and no socket.
func TestRegistration(t *testing.T) {
	r := newRig(t, newAPI(), "a", akriv0.ConfigurationSpec{}, "east")
	if _, err := r.allocate(t.Context(), east(), []string{east().instance + "-0"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	defer func() { cancel(); r.stop(); r.running.Wait() }()
	r.mu.Lock()
	for k := range r.inventory.keys(true) {
		r.servers[k] = newServer(r.Plugins, k)
	}
	r.mu.Unlock()
	leftover := filepath.Join(r.Directory, "kubeslot-of-a-former-run.sock")
	if err := os.WriteFile(leftover, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.removeOldSockets(klog.Background())
	if _, err := os.Stat(leftover); err == nil {
		t.Error("a socket of a former run is left")
	}
	r.running.Go(func() { r.followKubelet(ctx, time.Hour) })
	if err := r.Registered(); err == nil {
		t.Error("registered, without a kubelet")
	}

	slots := fmt.Sprintf("%[1]s-0:Healthy %[1]s-1:Healthy", east().instance)
	want := fmt.Sprint(map[string]string{"akri.sh/cam": "cam-0:Healthy", "akri.sh/" + east().instance: slots})
	kubelet := startKubelet(t, r.Directory)
	await.That(t, "the kubelet to have both lists", func() (bool, string) {
		return kubelet.lists(kubelet.last) == want, kubelet.lists(kubelet.last)
	})
	await.That(t, "all to be registered", func() (bool, string) {
		err := r.Registered()
		return err == nil, fmt.Sprint(err)
	})

	// A change shows.
	if _, err := r.allocate(t.Context(), cam, []string{"cam-0"}); err != nil {
		t.Fatal(err)
	}
	want = fmt.Sprint(map[string]string{"akri.sh/cam": "cam-0:Healthy", "akri.sh/" + east().instance: strings.Replace(slots, "-1:Healthy", "-1:Unhealthy", 1)})
	await.That(t, "the kubelet to see the Instance's other slot taken", func() (bool, string) {
		return kubelet.lists(kubelet.last) == want, kubelet.lists(kubelet.last)
	})

	kubelet.end()
	next := startKubelet(t, r.Directory)
	await.That(t, "the next kubelet to have both lists", func() (bool, string) {
		return next.lists(next.first) == want, next.lists(next.first)
	})

	s := r.servers[east()]
	r.mu.Lock()
	delete(r.servers, east())
	r.mu.Unlock()
	s.end(ctx)
	await.That(t, "the Instance to have no ids", func() (bool, string) {
		next.mu.Lock()
		defer next.mu.Unlock()
		return next.last["akri.sh/"+east().instance] == "", fmt.Sprint(next.last)
	})
	await.That(t, "its socket to be gone", func() (bool, string) {
		_, err := os.Stat(s.socket)
		return err != nil, "it is there"
	})
}

// A kubelet that restarts removes the sockets: what listened at them is closed, and that is
// no error.
func TestRestartsLeaveNoListener(t *testing.T) {
	r := newRig(t, newAPI(), "a", akriv0.ConfigurationSpec{}, "east")
	var mu sync.Mutex
	var logs []string
	logger := funcr.New(func(_, line string) {
		mu.Lock()
		defer mu.Unlock()
		logs = append(logs, line)
	}, funcr.Options{})
	s := newServer(r.Plugins, cam)
	for range 5 {
		if err := s.serve(klog.NewContext(t.Context(), logger)); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Lstat(s.socket); err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("the socket's mode is %v, %v; want it for root alone", info.Mode(), err)
		}
		conn, err := grpc.NewClient("unix://"+s.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pluginapi.NewDevicePluginClient(conn).GetDevicePluginOptions(t.Context(), &pluginapi.Empty{}); err != nil {
			t.Fatal(err)
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	await.That(t, "one socket to be open", func() (bool, string) {
		sockets, err := os.ReadFile("/proc/net/unix") // removed ones too
		n := strings.Count(string(sockets), " "+filepath.Dir(s.socket)+"/")
		return err == nil && n == 1, fmt.Sprint(n, " are, ", err)
	})
	s.grpc.Stop()
	r.running.Wait()
	if len(logs) > 0 {
		t.Errorf("logged: %v", logs)
	}
}

// A socket's path must not be longer than the kernel takes.
func TestSocketPaths(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range []string{"cam", "cam-000001", strings.Repeat("long-", 13) + "a", strings.Repeat("long-", 13) + "b", strings.Repeat("x", 69)} {
		path := socketOf("/var/lib/kubelet/device-plugins", name)
		if len(path) > maxSocketPath || filepath.Dir(path) != "/var/lib/kubelet/device-plugins" || seen[path] {
			t.Errorf("%s has socket %s, of %d bytes", name, path, len(path))
		}
		seen[path] = true
	}
	if got := socketOf("/d", "cam"); got != "/d/kubeslot-cam.sock" {
		t.Errorf("got %s", got)
	}
}

// What is served: scope Pod is not, and the Configuration is told why.
func TestRefusedScope(t *testing.T) {
	r := newRig(t, newAPI(), "a", akriv0.ConfigurationSpec{UniqueScope: akriv0.UniquePerPod}, "east")
	inv, _ := r.takeInventory()
	keys := inv.keys(true)
	if keys[cam] || !keys[east()] || len(keys) != 1 {
		t.Errorf("served are %v", keys)
	}
	r.recordRefused(nil, inv)
	r.recordRefused(inv, inv)
	if len(r.events.Events) != 1 {
		t.Fatalf("%d Events, want 1", len(r.events.Events))
	}
	if event := <-r.events.Events; !strings.Contains(event, reasonScope) || !strings.Contains(event, "akri.sh/cam") {
		t.Errorf("Event %q", event)
	}
	if _, err := r.allocate(t.Context(), cam, []string{"cam-0"}); err == nil {
		t.Error("a slot was given")
	}
	if got := inv.keys(false); len(got) != 0 {
		t.Errorf("without Instances: %v", slices.Collect(func(yield func(key) bool) {
			for k := range got {
				yield(k)
			}
		}))
	}
}

// An overflow of the watch may have lost the kubelet's socket.
func TestALostWatchEventIsLookedFor(t *testing.T) {
	errs := make(chan error, 1)
	errs <- fsnotify.ErrEventOverflow
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if !(&Plugins{}).awaitNews(ctx, nil, errs, nil, nil) {
		t.Error("the sockets are not looked at")
	}
}
