package remote

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types/plugin/registration"
	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

// What a plugin may not say that it is: it is refused, hears why, and the log says so once.
func TestRefused(t *testing.T) {
	type info = registration.PluginInfo
	for name, tc := range map[string]struct {
		change func(*info)
		want   string
		silent bool // it does not hear why
	}{
		"no name":         {func(i *info) { i.Name = "" }, `"" is not a plugin's name`, false},
		"a path":          {func(i *info) { i.Name = "../../etc" }, `"../../etc" is not a plugin's name`, false},
		"a name of 32 kB": {func(i *info) { i.Name = strings.Repeat("x", 32<<10) }, "is not a plugin's name", false},
		"a name of 1 MB":  {func(i *info) { i.Name = strings.Repeat("x", 1<<20) }, "larger than max", true},
		"the other half": {func(i *info) { i.Half = registration.Half_SCHEDULER },
			`plugin "widget" says that it is half SCHEDULER, and the sockets of this folder are half DEVICE`, false},
		"no half": {func(i *info) { i.Half = 0 }, "half UNKNOWN", false},
		"no version": {func(i *info) { i.SupportedVersions = nil },
			`plugin "widget" serves the versions "" of the protocol, and "v1alpha1" is called here`, false},
		"new version": {func(i *info) { i.SupportedVersions = []string{"v2", "v3"} },
			`serves the versions "v2 v3"`, false},
		"a million versions": {func(i *info) { i.SupportedVersions = make([]string, 1_000_000) }, "larger than max",
			true},
		"a socket elsewhere": {func(i *info) { i.Socket = "/run/containerd/containerd.sock" },
			`names the socket "/run/containerd/containerd.sock", which is not the name of a file in the same folder`, false},
		"a socket above": {func(i *info) { i.Socket = ".." }, `names the socket ".."`, false},
		"a socket that is none": {func(i *info) { i.Socket = "none" },
			`plugin "widget" names the socket "none": there is no such socket`, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, log := runLogged(t, setup{})
			p := &plugin{info: widget(), statuses: make(chan *registration.Status, 10)}
			tc.change(p.info)
			serve(t, s, "a.sock", p)
			if !tc.silent {
				for range 3 { // it is tried again
					got := <-p.statuses
					if err := got.GetError(); got.GetVersion() != "" || !strings.Contains(err, tc.want) ||
						len(err) > maxErrorBytes {
						t.Errorf("its status is %.300q, %.1000q, want %s", got.GetVersion(), err, tc.want)
					}
				}
			}
			awaitLog(t, log, tc.want)
			if got := strings.Count(log(), "A plugin is not connected"); got != 1 {
				t.Errorf("%d lines in the log:\n%.5000s", got, log())
			}
			for _, p := range s.Plugins() {
				if p.Away() == nil {
					t.Errorf("plugin %s is ready", p.GetName())
				}
			}
		})
	}
}

// Streams that never end in place of one answer.
func TestEndlessStream(t *testing.T) {
	for _, hostile := range []string{registration.Registration_GetInfo_FullMethodName,
		pb.Device_Allocate_FullMethodName} {
		t.Run(hostile, func(t *testing.T) {
			s, log := runLogged(t, setup{})
			server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
				method, _ := grpc.Method(stream.Context())
				for stream.Context().Err() == nil {
					answer := any(widget())
					if method == hostile {
						answer = &registration.PluginInfo{Name: strings.Repeat("x", 1<<10)}
					}
					if err := stream.SendMsg(answer); err != nil || method != hostile {
						return err
					}
				}
				return nil
			}))
			go server.Serve(listen(t, s, "a.sock"))
			t.Cleanup(server.Stop)
			if hostile == registration.Registration_GetInfo_FullMethodName {
				awaitLog(t, log, `plugin "a.sock" failed in GetInfo`)
				return
			}
			_, err := ask(awaitReady(t, s, "widget"), await.Patience)
			if err == nil || len(err.Error()) > 2*maxErrorBytes {
				t.Errorf("Call() = %v", err)
			}
		})
	}
}

// A plugin need not take the status of its registration.
func TestStatusIsNotTaken(t *testing.T) {
	s := run(t, setup{})
	serve(t, s, "a.sock", &plugin{mark: "deaf", deaf: true})
	answers(t, awaitReady(t, s, "widget"), "deaf")
}

// A server that closes each connection is connected ever less often.
func TestClosesAtOnce(t *testing.T) {
	s := run(t, setup{})
	l := listen(t, s, "a.sock")
	defer l.Close()
	begun := time.Now()
	const connections = 6
	for range connections {
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	if least, took := 31*s.retry.Duration, time.Since(begun); took < least {
		t.Errorf("%d connections in %v, want at least %v", connections, took, least)
	}
}

// New names are known for ever: there are not ever more.
func TestMostNames(t *testing.T) {
	s, err := New(setup{folder: "/nowhere"}.config(t))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 * maxNames {
		if _, err = s.plugin(fmt.Sprint("p", i)); err != nil && i < maxNames {
			t.Fatal(err)
		}
	}
	if !errors.Is(err, errMoreNames) || len(s.Plugins()) != maxNames {
		t.Errorf("%d plugins, %v", len(s.Plugins()), err)
	}
}

// Who may listen: root and the host's own user.
func TestTrust(t *testing.T) {
	own := uint32(os.Geteuid())
	for uid, ok := range map[uint32]bool{0: true, own: true, 65534: false, 12345: false, 1<<32 - 1: false} {
		if err := trust(uid); (err == nil) != ok {
			t.Errorf("trust(%d) = %v", uid, err)
		}
	}
}

// Files that are no sockets of somebody whom the host trusts.
func TestUntrusted(t *testing.T) {
	const other = 12345
	for name, tc := range map[string]struct {
		make func(t *testing.T, s *Sockets, path string)
		root bool // the test has to be root's
		want string
	}{
		"a file": {func(t *testing.T, _ *Sockets, path string) {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, false, "it is no socket"},
		"a link": {func(t *testing.T, s *Sockets, path string) {
			serve(t, s, "half", &plugin{})
			if err := os.Symlink("half", path); err != nil {
				t.Fatal(err)
			}
		}, false, "it is no socket"},
		"a stranger's socket": {func(t *testing.T, s *Sockets, path string) {
			serve(t, s, "half", &plugin{})
			half := filepath.Join(s.config.Sockets, "half")
			if err := errors.Join(os.Chown(half, other, other), os.Rename(half, path)); err != nil {
				t.Fatal(err)
			}
		}, true, "the socket belongs to user 12345, and neither to root"},
		"a stranger's process": {func(t *testing.T, s *Sockets, path string) {
			server := grpc.NewServer()
			registration.RegisterRegistrationServer(server, &plugin{})
			done := make(chan struct{})
			go func() {
				runtime.LockOSThread() // which ends with the goroutine: its user is another
				defer close(done)
				l := listen(t, s, "half")
				if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, other, other, other); errno != 0 {
					t.Error(errno)
				}
				raw, err := l.(syscall.Conn).SyscallConn()
				if err != nil {
					t.Error(err)
				}
				_ = raw.Control(func(fd uintptr) { err = unix.Listen(int(fd), 10) }) // its credentials are taken anew
				if err != nil {
					t.Error(err)
				}
				go server.Serve(l)
			}()
			<-done
			t.Cleanup(server.Stop)
			if err := os.Rename(filepath.Join(s.config.Sockets, "half"), path); err != nil {
				t.Fatal(err)
			}
		}, true, "the process that listens belongs to user 12345, and neither to root"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.root && os.Geteuid() != 0 {
				t.Skip("needs root")
			}
			s, log := runLogged(t, setup{})
			tc.make(t, s, filepath.Join(s.config.Sockets, "a.sock"))
			awaitLog(t, log, tc.want)
			if len(s.Plugins()) > 0 {
				t.Error("the plugin has registered")
			}
		})
	}
}
