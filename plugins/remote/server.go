package remote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/types/plugin/registration"
)

// registerTimeout is how long a plugin may take to say what it is.
const registerTimeout = 5 * time.Second

// retry is how long to wait before a socket is connected again: 1 s, doubling to 30 s. A server that
// was ready for longer than that begins anew.
var retry = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 100, Cap: 30 * time.Second}

// socket is a file of the folder. One that is made anew at the same path is another.
type socket struct {
	name    string
	file    fs.FileInfo
	order   int
	removed chan struct{} // is closed once the file is gone, or another's

	plugin *Plugin // once it has registered; follow's alone
	logged string  // the last error that was logged; follow's alone
}

// follow connects to the socket's server, and again when the connection has ended, until the file is
// gone or ctx ends.
func (s *Sockets) follow(ctx context.Context, sock *socket) {
	logger := klog.FromContext(ctx).WithValues("socket", filepath.Join(s.config.Folder, sock.name))
	backoff := s.retry
	for ctx.Err() == nil {
		begin := s.clock.Now()
		err := s.serve(klog.NewContext(ctx, logger), sock)
		if ctx.Err() != nil {
			return
		}
		var again <-chan time.Time
		if errors.Is(err, errReplaced) {
			logger.Info("A newer server of the plugin is called instead", "plugin", sock.plugin.name)
			sock.logged = ""
		} else {
			if s.clock.Since(begin) > s.retry.Cap {
				backoff = s.retry
			}
			again = s.clock.After(backoff.Step())
			sock.report(logger, err)
		}
		if !sock.pause(ctx, again) {
			return
		}
	}
}

// report logs why there is no connection, once until that changes.
func (sock *socket) report(logger klog.Logger, err error) {
	if err.Error() != sock.logged {
		sock.logged = err.Error()
		logger.Error(err, "A plugin is not connected; trying again")
	}
}

// pause waits until the socket is to be connected again: after a while, and not while a newer server
// is ready. It returns false if the file is gone or ctx ends.
func (sock *socket) pause(ctx context.Context, again <-chan time.Time) bool {
	for {
		var moved <-chan struct{}
		if again == nil {
			var newer bool
			if sock.plugin != nil {
				newer, moved = sock.plugin.newer(sock.order)
			}
			if !newer {
				return true
			}
		}
		select {
		case <-ctx.Done():
			return false
		case <-sock.removed:
			return false
		case <-again:
			again = nil
		case <-moved:
		}
	}
}

// serve connects to the socket, and returns why the connection ended.
func (s *Sockets) serve(ctx context.Context, sock *socket) error {
	conn, info, err := s.register(ctx, sock)
	if err != nil {
		if sock.plugin != nil {
			sock.plugin.unreachable(err)
		}
		return err
	}
	defer conn.Close()
	if newer, _ := sock.plugin.newer(sock.order); newer {
		return errReplaced
	}
	logger := klog.FromContext(ctx).WithValues("plugin", info.GetName(), "version", shorten(info.GetVersion(), maxQuoted))
	logger.Info("A plugin has registered")
	return s.connect(klog.NewContext(ctx, logger), sock, conn)
}

// register asks what is served at the socket, and returns a connection to the half.
func (s *Sockets) register(ctx context.Context, sock *socket) (*grpc.ClientConn, *registration.PluginInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	conn, err := dial(ctx, filepath.Join(s.config.Folder, sock.name))
	if err != nil {
		return nil, nil, err
	}
	client := registration.NewRegistrationClient(conn)
	info, err := client.GetInfo(ctx, &registration.GetInfoRequest{}, grpc.MaxCallRecvMsgSize(maxInfoBytes))
	if err != nil {
		conn.Close()
		return nil, nil, &callError{sock.name, "GetInfo", err}
	}
	half := conn
	version, err := checkInfo(info, s.config.Half)
	if err == nil {
		sock.plugin, err = s.plugin(info.GetName())
	}
	if other := info.GetSocket(); err == nil && other != "" && other != sock.name {
		if half, err = dial(ctx, filepath.Join(s.config.Folder, other)); err != nil {
			err = fmt.Errorf("its socket %q: %w", other, err)
		}
		defer conn.Close()
	}
	notify(ctx, client, version, err)
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return half, info, nil
}

// notify tells the plugin what became of its registration.
func notify(ctx context.Context, client registration.RegistrationClient, version string, refusal error) {
	result := &registration.Status{Version: version}
	if refusal != nil {
		result = &registration.Status{Error: refusal.Error()}
	}
	_, err := client.NotifyStatus(ctx, result, grpc.MaxCallRecvMsgSize(maxInfoBytes))
	if err != nil && status.Code(err) != codes.Unimplemented {
		klog.FromContext(ctx).V(2).Info("A plugin did not take the status of its registration", "err", err)
	}
}

// connect runs Connect until the server is gone or replaced and has no calls in flight. It returns
// the reason.
func (s *Sockets) connect(ctx context.Context, sock *socket, conn *grpc.ClientConn) error {
	p := sock.plugin
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	v := &server{conn: conn, order: sock.order, end: end}
	go func() { // the server closes the connection, or says that it is about to
		if conn.WaitForStateChange(running, connectivity.Ready) {
			p.leave(v, errEnded)
		}
	}()
	err := s.config.Connect(running, p, conn, func() {
		klog.FromContext(ctx).Info("A plugin is ready")
		p.ready(v)
	})
	switch {
	case errors.Is(context.Cause(running), errReplaced):
		err = errReplaced
	case err == nil || running.Err() != nil || conn.GetState() != connectivity.Ready:
		err = errEnded
	}
	if p.leave(v, err) {
		sock.logged = ""
	}
	<-running.Done() // no call is in flight
	return err
}
