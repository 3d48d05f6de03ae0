package remote

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types/plugin/registration"
	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

// answers waits until the plugin answers with the mark.
func answers(t *testing.T, p *Plugin, mark string) {
	t.Helper()
	await.That(t, "an answer of "+mark, func() (bool, string) {
		got, err := ask(p, await.Patience)
		return err == nil && got == mark, fmt.Sprintf("%q answers, %v", got, err)
	})
}

// A plugin comes, goes, and comes again at the same path; its folder comes late.
func TestComesAndGoes(t *testing.T) {
	parent := tempFolder(t)
	changed := make(chan *Plugin, 100)
	s := run(t, setup{folder: filepath.Join(parent, "late"),
		policies: map[string]string{"widget": Required, "other": Ignore}, changed: func(p *Plugin) { changed <- p }})
	if all := s.Plugins(); len(all) != 2 || all[0].GetName() != "other" || all[0].Required() || !all[1].Required() {
		t.Fatalf("%d plugins are known from the flag", len(all))
	}
	away := s.Away()
	if away == nil || !strings.Contains(away.Error(), `plugin "widget" is away since `) ||
		!strings.Contains(away.Error(), "--plugin-policy=widget=ignore") || strings.Contains(away.Error(), "other") {
		t.Fatalf("Away() = %v", away)
	}
	if _, err := ask(s.Plugins()[1], await.Patience); !errors.Is(err, ErrAway) {
		t.Fatalf("a plugin that is away answers %v", err)
	}
	if err := os.Mkdir(s.config.Sockets, 0o755); err != nil {
		t.Fatal(err)
	}
	first := &plugin{mark: "first", statuses: make(chan *registration.Status, 1)}
	server := serve(t, s, "a.sock", first)
	p := awaitReady(t, s, "widget")
	answers(t, p, "first")
	if got := <-first.statuses; got.GetVersion() != "v1alpha1" || got.GetError() != "" {
		t.Errorf("its status is %v", got)
	}
	if s.Away() != nil || <-changed != p {
		t.Errorf("Away() = %v", s.Away())
	}
	server.Stop()
	await.That(t, "the plugin that ended to be away, once it was tried again", func() (bool, string) {
		away := fmt.Sprint(p.Away())
		return strings.Contains(away, "connection refused"), away
	})
	serve(t, s, "a.sock", &plugin{mark: "second"})
	answers(t, p, "second")
	if again := awaitReady(t, s, "widget"); again != p {
		t.Error("the plugin is another one")
	}
}

// A server that ends in order takes no more calls, and finishes those that it has.
func TestGracefulStop(t *testing.T) {
	s := run(t, setup{})
	begun, finish := make(chan struct{}), make(chan struct{})
	end := sync.OnceFunc(func() { close(finish) })
	defer end()
	server := serve(t, s, "a.sock", &plugin{allocate: func(context.Context) (*pb.DeviceAllocateResponse, error) {
		close(begun)
		<-finish
		return &pb.DeviceAllocateResponse{DeviceNodes: []string{"last"}}, nil
	}})
	p := awaitReady(t, s, "widget")
	got := make(chan string)
	go func() {
		mark, err := ask(p, await.Patience)
		got <- fmt.Sprint(mark, err)
	}()
	<-begun
	stopped := make(chan struct{})
	go func() {
		server.GracefulStop()
		close(stopped)
	}()
	await.That(t, "the plugin that ends to be away", func() bool { return p.Away() != nil })
	end()
	if got := <-got; got != "last<nil>" {
		t.Errorf("the call in flight got %s", got)
	}
	<-stopped
}

// The half may be at another socket.
func TestOtherSocket(t *testing.T) {
	s := run(t, setup{})
	serve(t, s, "half", &plugin{mark: "half"})
	info := widget()
	info.Socket = "half"
	serve(t, s, "a.sock", &plugin{mark: "registers", info: info})
	answers(t, awaitReady(t, s, "widget"), "half")
}

// Of two servers of one plugin the newer is called. The older one's calls end; it is called again
// when the newer one has ended.
func TestTwoServers(t *testing.T) {
	added := make(chan *Plugin, 10)
	ended := make(chan error, 10)
	s, log := runLogged(t, setup{added: func(p *Plugin) { added <- p },
		connect: func(ctx context.Context, _ *Plugin, _ *Server, ready func()) error {
			ready()
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return ctx.Err()
		}})
	begun, finish := make(chan struct{}), make(chan struct{})
	end := sync.OnceFunc(func() { close(finish) })
	defer end()
	begin := sync.OnceFunc(func() { close(begun) })
	serve(t, s, "old.sock", &plugin{allocate: func(context.Context) (*pb.DeviceAllocateResponse, error) {
		begin()
		<-finish
		return &pb.DeviceAllocateResponse{DeviceNodes: []string{"old"}}, nil
	}})
	p := awaitReady(t, s, "widget")
	got := make(chan string)
	go func() {
		mark, err := ask(p, await.Patience)
		got <- fmt.Sprint(mark, err)
	}()
	<-begun
	server := serve(t, s, "new.sock", &plugin{mark: "new"})
	await.That(t, "the newer server to be called", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.called.socket.order == 2
	})
	if mark, err := ask(p, await.Patience); mark != "new" {
		t.Errorf("%q answers, %v", mark, err)
	}
	select {
	case err := <-ended:
		t.Fatalf("a connection with a call in flight ended: %v", err)
	default:
	}
	end()
	if got := <-got; got != "old<nil>" {
		t.Errorf("the older one's call got %s", got)
	}
	if err := <-ended; !errors.Is(err, errReplaced) {
		t.Errorf("the older one's connection ended: %v", err)
	}
	server.Stop()
	answers(t, p, "old")
	serve(t, s, "new.sock", &plugin{mark: "newest"})
	answers(t, p, "newest")
	if got := len(added); got != 1 {
		t.Errorf("the plugin was added %d times", got)
	}
	if got := strings.Count(log(), "A plugin has registered"); got != 4 { // old, new, old, newest
		t.Errorf("it has registered %d times:\n%s", got, log())
	}
}

// An older server is called at once when the newer one has ended, however often that comes and goes.
func TestNewerServerComesAndGoes(t *testing.T) {
	s := run(t, setup{retry: time.Hour}) // of servers that ended by themselves
	serve(t, s, "old.sock", &plugin{mark: "old"})
	p := awaitReady(t, s, "widget")
	for i := range 3 {
		server := serve(t, s, fmt.Sprintf("new%d.sock", i), &plugin{mark: "new"})
		answers(t, p, "new")
		server.Stop()
		answers(t, p, "old")
	}
}

// A newer server that does not become ready leaves the older one in place.
func TestNotReady(t *testing.T) {
	failed := make(chan struct{}, 100)
	s := run(t, setup{connect: func(ctx context.Context, _ *Plugin, conn *Server,
		ready func()) error {
		answer, err := pb.NewDeviceClient(conn).Allocate(ctx, &pb.DeviceAllocateRequest{})
		if err == nil && answer.GetDeviceNodes()[0] == "bad" {
			failed <- struct{}{}
			return errors.New("it does not start")
		}
		ready()
		<-ctx.Done()
		return nil
	}})
	serve(t, s, "old.sock", &plugin{mark: "old"})
	p := awaitReady(t, s, "widget")
	serve(t, s, "new.sock", &plugin{mark: "bad"})
	<-failed
	<-failed // it is tried again
	answers(t, p, "old")
}

// More sockets than are connected are named, and take the place of one that goes.
func TestMostSockets(t *testing.T) {
	s := run(t, setup{})
	var servers []*grpc.Server
	for i := range maxSockets + 1 {
		info := widget()
		info.Name = fmt.Sprintf("p%02d", i)
		servers = append(servers, serve(t, s, info.Name+".sock", &plugin{mark: info.Name, info: info}))
	}
	await.That(t, fmt.Sprintf("%d plugins to be ready", maxSockets), func() (bool, string) {
		ready := 0
		for _, p := range s.Plugins() {
			if p.Away() == nil {
				ready++
			}
		}
		return ready == maxSockets, fmt.Sprint(ready)
	})
	gone := s.Plugins()[0]
	if len(s.Plugins()) != maxSockets {
		t.Fatalf("%d plugins are known", len(s.Plugins()))
	}
	for i, server := range servers {
		if fmt.Sprintf("p%02d", i) == gone.GetName() {
			if err := os.Remove(filepath.Join(s.config.Sockets, gone.GetName()+".sock")); err != nil {
				t.Fatal(err)
			}
			server.Stop()
		}
	}
	await.That(t, fmt.Sprintf("%d plugins to be known", maxSockets+1), func() (bool, string) {
		got := len(s.Plugins())
		return got == maxSockets+1, fmt.Sprint(got)
	})
}

// The number of a file that was removed may be given again.
func TestSameFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.sock")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, time.Time{}, before.ModTime().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Lstat(path); err != nil || same(before, after) || !same(after, after) {
		t.Errorf("a file of another time is the same (%v)", err)
	}
}

// The host starts where nothing more can be opened, such as a watch of inotify: there may be no plugin.
func TestStartsWithoutDescriptors(t *testing.T) {
	config := setup{}.config(t)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	_, err := New(config)
	if err := errors.Join(err, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)); err != nil {
		t.Error(err)
	}
}

// Connections do not outlive Run.
func TestRunEnds(t *testing.T) {
	s, err := New(setup{}.config(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		s.Run(ctx)
		close(done)
	}()
	serve(t, s, "a.sock", &plugin{})
	p := awaitReady(t, s, "widget")
	cancel()
	await.Next(t, "the end of Run", done)
	if p.Away() == nil {
		t.Error("the plugin is not away")
	}
}

// A plugin that is killed again and again while it is called: each call has an answer of a server that
// there was, or an error; the newest server is called in the end.
func TestKilledUnderLoad(t *testing.T) {
	const kills, callers = 30, 4
	var connected atomic.Int32
	s := run(t, setup{connect: func(ctx context.Context, p *Plugin, conn *Server,
		ready func()) error {
		connected.Add(1)
		defer connected.Add(-1)
		return hold(ctx, p, conn, ready)
	}})
	var wrong atomic.Value
	var calling sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	var p *Plugin
	for i := range kills {
		mark := fmt.Sprintf("server %d", i)
		server := serve(t, s, "a.sock", &plugin{mark: mark})
		if p == nil {
			p = awaitReady(t, s, "widget")
			for range callers {
				calling.Go(func() {
					for ctx.Err() == nil {
						if got, err := ask(p, await.Patience); err == nil && !strings.HasPrefix(got, "server ") {
							wrong.Store(got)
						}
					}
				})
			}
		}
		answers(t, p, mark)
		if i < kills-1 {
			server.Stop()
		}
	}
	stop()
	calling.Wait()
	if got := wrong.Load(); got != nil {
		t.Errorf("a call got %q without an error", got)
	}
	if err := p.Away(); err != nil {
		t.Errorf("Away() = %v", err)
	}
	await.That(t, "one server to be connected", func() (bool, string) {
		got := connected.Load()
		return got == 1, fmt.Sprint(got)
	})
}

// Who asks which plugins there are waits until the folder could be listed.
func TestKnownOnceListed(t *testing.T) {
	folder, served := filepath.Join(tempFolder(t), "none"), tempFolder(t)
	if err := os.WriteFile(folder, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	added, goOn := make(chan struct{}), make(chan struct{})
	s, log := runLogged(t, setup{folder: folder, added: func(*Plugin) {
		close(added)
		<-goOn
	}})
	awaitLog(t, log, "not a directory")
	serve(t, &Sockets{config: Config{Options: Options{Sockets: served}}}, "a.sock", &plugin{})
	if err := unix.Renameat2(unix.AT_FDCWD, served, unix.AT_FDCWD, folder, unix.RENAME_EXCHANGE); err != nil {
		t.Fatal(err)
	}
	<-added
	select {
	case <-s.known:
		t.Error("all plugins are known, before one was added")
	default:
	}
	close(goOn)
	s.Known(t.Context())
}
