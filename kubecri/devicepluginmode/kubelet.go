package devicepluginmode

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/crypto/blake2b"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubeslot/kubeslot/kubecri/proxy"
)

const (
	// kubeletSocket is where the kubelet takes registrations, in its directory.
	kubeletSocket = "kubelet.sock"
	// Our sockets in it: kubeslot-<resource>.sock.
	socketPrefix, socketSuffix = "kubeslot-", ".sock"
	// maxSocketPath is the kernel's limit.
	maxSocketPath = 107
	// registrars is how many plugins are registered at a time.
	registrars = 16
	// registerTimeout bounds one registration, and registerAgain is between two attempts,
	// and how long the kubelet may be without a stream of a plugin that it knows.
	registerTimeout, registerAgain = 5 * time.Second, 200 * time.Millisecond
	// attendEvery is how often the sockets are looked at without any news of them.
	attendEvery = 5 * time.Second
)

// socketOf is the path of a resource's socket. A name that would be too long for the
// kernel ends with its hash.
func socketOf(directory, name string) string {
	path := filepath.Join(directory, socketPrefix+name+socketSuffix)
	if len(path) <= maxSocketPath {
		return path
	}
	sum := blake2b.Sum256([]byte(name))
	hash := hex.EncodeToString(sum[:6])
	room := max(maxSocketPath-len(filepath.Join(directory, socketPrefix+socketSuffix))-len(hash)-1, 0)
	return filepath.Join(directory, socketPrefix+name[:min(room, len(name))]+"-"+hash+socketSuffix)
}

// removeOldSockets removes those of a former life of this process. Those of plugins that
// there are will be made anew.
func (p *Plugins) removeOldSockets(logger klog.Logger) {
	old, _ := filepath.Glob(filepath.Join(p.Directory, socketPrefix+"*"+socketSuffix)) // the pattern is well-formed
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			logger.Error(err, "A socket of a former run is left over")
		}
	}
}

// followKubelet registers the plugins whenever the kubelet starts: it removes all sockets
// in its directory and then makes its own. Without any news of them they are looked at so often.
func (p *Plugins) followKubelet(ctx context.Context, every time.Duration) {
	logger := klog.FromContext(ctx)
	if err := os.MkdirAll(p.Directory, 0o750); err != nil {
		logger.Error(err, "Cannot make the kubelet's directory for device plugins; trying to watch it", "every", every)
	}
	var events chan fsnotify.Event
	var errs chan error
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		defer watcher.Close()
		err = watcher.Add(p.Directory)
		events, errs = watcher.Events, watcher.Errors
	}
	if err != nil {
		logger.Error(err, "Cannot watch the kubelet's directory for device plugins: "+
			"a kubelet that restarts is noticed late", "within", every)
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		var retry <-chan time.Time
		if !p.attend(ctx) {
			retry = time.After(registerAgain)
		}
		if !p.awaitNews(ctx, events, errs, retry, ticker.C) {
			return
		}
	}
}

// awaitNews waits until the plugins are to be attended to; false when ctx ends first.
func (p *Plugins) awaitNews(ctx context.Context, events <-chan fsnotify.Event, errs <-chan error,
	retry, tick <-chan time.Time) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case event := <-events:
			// Sockets of ours come and go all the time: the kubelet's is what counts.
			if filepath.Base(event.Name) == kubeletSocket {
				return true
			}
		case err := <-errs: // events may be lost, by an overflow for one
			klog.FromContext(ctx).Error(err, "Cannot watch the kubelet's directory for device plugins, looking at it")
			return true
		case <-p.attention:
			return true
		case <-retry:
			return true
		case <-tick:
			return true
		}
	}
}

// attend serves and registers the plugins that are not, and reports whether all are or the
// kubelet is not there.
func (p *Plugins) attend(ctx context.Context) (done bool) {
	p.attending.Lock()
	defer p.attending.Unlock()
	path := filepath.Join(p.Directory, kubeletSocket)
	kubelet, err := os.Stat(path)
	if err != nil {
		return true // its socket will tell
	}
	var todo []*server
	for _, s := range p.allServers() {
		now, err := os.Lstat(s.socket)
		if err != nil || !same(s.bound, now) {
			s.bound = nil
		}
		if s.bound == nil || !same(s.registered, kubelet) || s.wasLost() {
			todo = append(todo, s)
		}
	}
	if len(todo) == 0 {
		return true
	}
	begin := time.Now()
	conn, err := proxy.Dial(path)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot register device plugins", "socket", path)
		return false
	}
	defer conn.Close()
	client := pluginapi.NewRegistrationClient(conn)
	errs := make([]error, len(todo))
	workqueue.ParallelizeUntil(ctx, registrars, len(todo), func(i int) { errs[i] = todo[i].register(ctx, client, kubelet) })
	if failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil }); len(failed) > 0 {
		if !p.unregistered && ctx.Err() == nil { // once an outage
			klog.FromContext(ctx).Error(failed[0], "Device plugins are not registered with the kubelet yet, trying again", "plugins", len(failed), "every", registerAgain)
		}
		p.unregistered = true
		return false
	}
	p.unregistered = false
	klog.FromContext(ctx).Info("Registered device plugins with the kubelet", "plugins", len(todo), "took", time.Since(begin).Round(time.Millisecond))
	return true
}

// register serves the plugin and tells the kubelet of it.
func (s *server) register(ctx context.Context, client pluginapi.RegistrationClient, kubelet os.FileInfo) error {
	select {
	case <-s.ended:
		return nil
	default:
	}
	if s.bound == nil {
		if err := s.serve(ctx); err != nil {
			return fmt.Errorf("serve the device plugin of %s: %w", s.resource, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	_, err := client.Register(ctx, &pluginapi.RegisterRequest{Version: pluginapi.Version, Endpoint: filepath.Base(s.socket), ResourceName: s.resource, Options: options})
	if err != nil {
		return fmt.Errorf("register the device plugin of %s with the kubelet: %w", s.resource, err)
	}
	s.registered = kubelet
	s.mu.Lock()
	s.lost = false
	s.mu.Unlock()
	return nil
}

func (p *Plugins) allServers() []*server {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.servers))
}

// stop ends all plugins; their sockets stay.
func (p *Plugins) stop() {
	var ending sync.WaitGroup
	for _, s := range p.allServers() {
		ending.Go(s.grpc.Stop)
	}
	ending.Wait()
}

// same reports whether a file is still the same: the number of one that was removed may be
// given again.
func same(a, b os.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime())
}

// Registered returns an error while plugins are not registered with the kubelet.
func (p *Plugins) Registered() error {
	p.attending.Lock()
	defer p.attending.Unlock()
	var missing []string
	for _, s := range p.allServers() {
		if s.registered == nil {
			missing = append(missing, s.resource)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the kubelet does not know the device plugins of %s", strings.Join(missing, ", "))
	}
	return nil
}
