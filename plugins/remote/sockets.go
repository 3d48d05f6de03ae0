package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/types/plugin/registration"
)

const (
	// maxSockets is how many sockets are connected: more than one machine has kinds of devices.
	maxSockets = 32
	// maxNames is how many plugins are known. A name that was seen is known until the process ends.
	maxNames = 64
	// maxFiles is how many files of the folder are looked at.
	maxFiles = 1024
	// lookInterval is how often the folder is looked at, and so how often a plugin that keeps making its
	// socket anew is connected. inotify may have no room for another watch, and does not say when a folder
	// is made that is missing.
	lookInterval = time.Second
	// minTimeout leaves a plugin the time to answer at all.
	minTimeout = 10 * time.Millisecond
	// suffix is what sockets are named.
	suffix = ".sock"
)

// Config is what Sockets needs.
type Config struct {
	Options
	Half registration.Half
	// Added is called once for each plugin, before its first Connect: by New for those of Policies.
	Added func(*Plugin) Handler
}

// Handler is what the host does with one plugin.
type Handler interface {
	// Connect is called for each connection: the half's Start, then its streams. It calls ready, once,
	// when the plugin may be called, and returns when ctx ends. If it returns before, the connection is
	// closed, and made again after a while.
	Connect(ctx context.Context, s *Server, ready func()) error
	// Changed is called when the plugin came, went away, or answers again. It may be called
	// concurrently, and must not wait; the Plugin has the state.
	Changed()
}

// Sockets are the plugins of a folder. It is safe for concurrent use. For Plugins, Away and HoldersChanged nil is
// one without any.
type Sockets struct {
	config Config
	retry  wait.Backoff
	look   time.Duration // how often the folder is looked at
	known  chan struct{} // is closed once the sockets of the first list have said what they are

	mu     sync.Mutex // is held while Added is called
	byName map[string]*Plugin

	// These are Run's alone.
	sockets  map[string]*socket // by the file's name
	orders   int                // that were given to sockets
	running  errgroup.Group     // of follow, also for sockets that are gone and still connected
	problems problems
}

// New returns Sockets with the plugins of the Policies.
func New(config Config) (*Sockets, error) {
	if config.Timeout < minTimeout {
		return nil, fmt.Errorf("--plugin-timeout %s: want at least %s", config.Timeout, minTimeout)
	}
	s := &Sockets{config: config, retry: retry, look: lookInterval, known: make(chan struct{}),
		byName: map[string]*Plugin{}, sockets: map[string]*socket{}}
	s.running.SetLimit(maxSockets)
	for _, name := range slices.Sorted(maps.Keys(config.Policies)) {
		if policy := config.Policies[name]; policy != Required && policy != Ignore {
			return nil, fmt.Errorf("plugin %q has the policy %q, which is neither %q nor %q",
				name, policy, Required, Ignore)
		}
		if err := registration.CheckName(name); err != nil {
			return nil, err
		}
		if _, err := s.plugin(name); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Known waits until each plugin that served when the folder was first listed was added, or could not be
// asked what it is, or ctx ends.
func (s *Sockets) Known(ctx context.Context) {
	select {
	case <-s.known:
	case <-ctx.Done():
	}
}

// Away names the required plugins that are away, and since when. It is nil if none is.
func (s *Sockets) Away() error {
	var away []error
	for _, p := range s.Plugins() {
		if p.Required() {
			away = append(away, p.Away())
		}
	}
	return errors.Join(away...)
}

// Plugins returns all that are known, by name.
func (s *Sockets) Plugins() []*Plugin {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.byName), func(a, b *Plugin) int { return cmp.Compare(a.name, b.name) })
}

// errMoreNames is what a plugin gets that would be one too many.
var errMoreNames = errors.New("too many names of plugins were seen: restart this process to forget them")

// plugin returns the plugin of the name, which it adds.
func (s *Sockets) plugin(name string) (*Plugin, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.byName[name]; p != nil {
		return p, nil
	}
	if len(s.byName) >= maxNames {
		return nil, errMoreNames
	}
	p := &Plugin{name: name, options: &s.config.Options, since: time.Now()}
	p.handler = s.config.Added(p)
	s.byName[name] = p
	return p, nil
}

// Run connects to the sockets until ctx ends, and returns once no Connect runs.
func (s *Sockets) Run(ctx context.Context) {
	defer s.running.Wait()
	first := sync.OnceFunc(func() {
		all := slices.Collect(maps.Values(s.sockets))
		go func() {
			for _, sock := range all {
				<-sock.asked // it is, in any case
			}
			close(s.known)
		}()
	})
	wait.UntilWithContext(ctx, func(context.Context) {
		files, err := list(s.config.Sockets)
		if err == nil {
			err = s.update(ctx, files)
			first()
		}
		s.problems.log(klog.FromContext(ctx), err, "Cannot connect to all plugins")
	}, s.look)
}

// update follows the sockets that are new. An error says that it does not follow all.
func (s *Sockets) update(ctx context.Context, files map[string]fs.FileInfo) error {
	for name, sock := range s.sockets {
		if now := files[name]; now == nil || !same(sock.file, now) {
			sock.remove()
			delete(s.sockets, name)
		}
	}
	added := slices.SortedFunc(maps.Keys(files), func(a, b string) int {
		return cmp.Or(files[a].ModTime().Compare(files[b].ModTime()), cmp.Compare(a, b))
	})
	var over []string
	for _, name := range added {
		if s.sockets[name] == nil && !s.add(ctx, name, files[name]) {
			over = append(over, name)
		}
	}
	if len(over) > 0 {
		return fmt.Errorf("%s has more than %d sockets, which are not connected until others are removed: %s",
			s.config.Sockets, maxSockets, shorten(strings.Join(over, ", "), maxErrorBytes))
	}
	return nil
}

// add follows a socket, unless there are too many.
func (s *Sockets) add(ctx context.Context, name string, file fs.FileInfo) bool {
	s.orders++
	present, remove := context.WithCancel(ctx)
	sock := &socket{name: name, file: file, order: s.orders, remove: remove, asked: make(chan struct{})}
	follow := func() error {
		s.follow(ctx, present, sock)
		return nil
	}
	if !s.running.TryGo(follow) {
		remove()
		return false
	}
	s.sockets[name] = sock
	return true
}

// list returns the folder's files that are named as sockets. A folder that is missing has none.
func list(path string) (map[string]fs.FileInfo, error) {
	folder, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	entries, err := folder.ReadDir(maxFiles)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(entries) == maxFiles {
		return nil, fmt.Errorf("%s has %d files or more: remove what is no plugin's", path, maxFiles)
	}
	files := map[string]fs.FileInfo{}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), suffix) {
			continue
		}
		if info, err := e.Info(); err == nil { // else it is gone
			files[e.Name()] = info
		}
	}
	return files, nil
}

// same reports whether a file is still the same: the number of one that was removed may be given
// again.
func same(a, b fs.FileInfo) bool { return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) }
