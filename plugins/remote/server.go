package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/types/plugin/registration"
	"github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

// registerTimeout is how long a plugin may take to say what it is, and a scheduler's half what it answers for.
const registerTimeout = 5 * time.Second

// retry is how long to wait before a socket is connected again: 1 s, doubling to 30 s. A server that
// lasted for longer than that begins anew.
var retry = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 100, Cap: 30 * time.Second}

// errRemade is that a socket was made anew, which has a follow of its own, or is about to.
var errRemade = errors.New("the socket was made anew")

// socket is a file of the folder. One that is made anew at the same path is another.
type socket struct {
	name   string
	file   fs.FileInfo
	order  int           // the newer, the higher
	remove func()        // is called once the file is gone, or another's
	asked  chan struct{} // is closed once it was asked for the first time what it is

	late int // calls in a row; locked by its plugin

	// These are follow's alone.
	plugin   *Plugin // once it has registered
	problems problems
}

// follow connects to the socket's server, and again when the connection has ended, until ctx ends. It
// does not connect again while a newer one is called, nor once present, which is the file's, has ended.
func (s *Sockets) follow(ctx, present context.Context, sock *socket) {
	logger := klog.FromContext(ctx).WithValues("socket", filepath.Join(s.config.Sockets, sock.name))
	ctx = klog.NewContext(ctx, logger)
	backoff := s.retry
	asked := sync.OnceFunc(func() { close(sock.asked) })
	defer asked()
	for present.Err() == nil {
		if newer := sock.plugin.newer(sock.order); newer != nil {
			select {
			case <-present.Done():
				return
			case <-newer:
				continue
			}
		}
		begun := time.Now()
		conn, err := s.register(ctx, sock)
		asked()
		if err == nil {
			err = sock.connect(ctx, conn)
		} else if sock.plugin != nil {
			sock.plugin.unreachable(err)
		}
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errReplaced):
			logger.Info("A newer socket of the plugin is called instead", "plugin", sock.plugin.name)
			continue // once the newer one has ended, at once
		case !errors.Is(err, errRemade):
			sock.problems.log(logger, err, "A plugin is not connected; trying again")
		}
		if time.Since(begun) > s.retry.Cap {
			backoff = s.retry
		}
		select {
		case <-present.Done():
		case <-time.After(backoff.Step()):
		}
	}
}

// register asks what is served at the socket, and returns a connection to the half.
func (s *Sockets) register(ctx context.Context, sock *socket) (*grpc.ClientConn, error) {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	path := filepath.Join(s.config.Sockets, sock.name)
	if now, err := os.Lstat(path); err == nil && !same(sock.file, now) {
		return nil, errRemade
	}
	conn, err := Dial(ctx, path)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	client := registration.NewRegistrationClient(conn)
	info, err := client.GetInfo(ctx, &registration.GetInfoRequest{}, grpc.MaxCallRecvMsgSize(maxInfoBytes))
	switch {
	case status.Code(err) == codes.Unimplemented:
		return nil, fmt.Errorf("it does not serve %s: a socket that another one names should not end in %s",
			registration.Registration_ServiceDesc.ServiceName, suffix)
	case err != nil:
		return nil, &callError{sock.name, "GetInfo", err}
	}
	if err = info.Check(s.config.Half, v1alpha1.Version); err == nil {
		sock.plugin, err = s.plugin(info.GetName())
	}
	var half *grpc.ClientConn
	if err == nil {
		half, err = Dial(ctx, filepath.Join(s.config.Sockets, cmp.Or(info.GetSocket(), sock.name)))
		if err != nil && info.GetSocket() != "" {
			err = fmt.Errorf("plugin %q names the socket %q: %w", info.GetName(), info.GetSocket(), err)
		}
	}
	result := &registration.Status{Version: v1alpha1.Version}
	if err != nil {
		result = &registration.Status{Error: err.Error()}
	}
	_, _ = client.NotifyStatus(ctx, result, grpc.MaxCallRecvMsgSize(maxInfoBytes)) // it need not take it
	if err == nil {
		klog.FromContext(ctx).Info("A plugin has registered", "plugin", info.GetName(),
			"version", shorten(info.GetVersion(), maxQuoted), "protocol", v1alpha1.Version)
	}
	return half, err
}

// connect runs the plugin's Connect until the server is gone or replaced and has no calls in flight,
// and closes the connection. It returns the reason.
func (sock *socket) connect(ctx context.Context, conn *grpc.ClientConn) error {
	defer conn.Close()
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	p, s := sock.plugin, &Server{ClientConn: conn, socket: sock, running: running, end: end}
	go func() { // the server closes the connection, or says that it is about to
		if conn.WaitForStateChange(running, connectivity.Ready) {
			p.drop(s, errEnded)
		}
	}()
	err := p.handler.Connect(running, s, func() {
		sock.problems = problems{} // what is wrong from now on is news
		p.ready(s)
	})
	if err == nil || conn.GetState() != connectivity.Ready {
		err = errEnded
	}
	p.drop(s, err)
	<-running.Done() // no call is in flight
	return context.Cause(running)
}

// problems logs what keeps being wrong once.
type problems struct{ last string }

func (p *problems) log(logger klog.Logger, err error, message string) {
	text := fmt.Sprint(err)
	if err != nil && text != p.last {
		logger.Error(err, message)
	}
	p.last = text
}
