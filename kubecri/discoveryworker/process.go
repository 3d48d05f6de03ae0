package discoveryworker

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/discovery/remote"
	"github.com/kubeslot/kubeslot/discovery/unixsocket"
)

const (
	// Command is the argument with which the program is a worker.
	Command = "discover"

	// self is this very program, also when its file has been replaced.
	self = "/proc/self/exe"

	// settled is how long a worker has to work until its next end counts as the first.
	settled = time.Minute

	// reapTime is how long it may take after a connection broke until it is known why the worker
	// ended, and outputTime how long a process that it left behind may keep its log open.
	reapTime, outputTime = 5 * time.Second, time.Second

	// logBytesPerSecond and logBurstBytes bound what a worker may log; a panic with the stacks
	// of many goroutines is logged whole.
	logBytesPerSecond, logBurstBytes = 16 << 10, 1 << 20
)

// restarts paces a worker that ends again and again.
var restarts = wait.Backoff{Duration: time.Second, Factor: 2, Steps: 7, Cap: time.Minute}

// Process is a worker that is a child process. It is started when it is needed and does not run,
// though not at once after it has ended. Make one with NewProcess.
type Process struct {
	ctx     context.Context // ends it
	socket  string
	args    []string
	clock   clock.PassiveClock
	restart wait.Backoff // used by one run at a time

	mu   sync.Mutex
	last *run // nil before the first
}

// run is a child from its start until the next one's. It is done when the child has ended, or could
// not start; the cause is why, and wraps remote.ErrNoWorker.
type run struct {
	context.Context
	end  context.CancelCauseFunc
	next time.Time // when another may be started
}

// NewProcess returns a worker with these arguments after Command, until ctx ends. Its socket, at that
// path, is this user's alone.
func NewProcess(ctx context.Context, clock clock.PassiveClock, socket string, args []string) *Process {
	return &Process{ctx: ctx, clock: clock, socket: socket, args: args, restart: restarts}
}

// Connect implements remote.Worker.
func (p *Process) Connect(ctx context.Context, peer net.Conn) (net.Conn, error) {
	r := p.running()
	if r.Err() != nil {
		return nil, context.Cause(r)
	}
	conn, err := connect(p.socket, peer)
	if err != nil {
		return nil, r.explain(ctx, err)
	}
	return &connection{conn, ctx, r}, nil
}

// running returns a run that is not done, or one after which no other may be started yet.
func (p *Process) running() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil || p.last.Err() != nil && !p.clock.Now().Before(p.last.next) {
		p.last = &run{}
		p.last.Context, p.last.end = context.WithCancelCause(context.WithoutCancel(p.ctx))
		_ = os.Remove(p.socket)               // what an earlier child left behind may still listen
		l, err := unixsocket.Listen(p.socket) // connections wait until the child accepts them
		go p.run(p.last, l, err)
	}
	return p.last
}

// run runs the child of the run, if it can listen.
func (p *Process) run(r *run, l *unixsocket.Listener, err error) {
	began := p.clock.Now()
	if err == nil {
		err = p.runChild(l)
	}
	if p.clock.Since(began) > settled {
		p.restart = restarts
	}
	pause := p.restart.Step()
	r.next = p.clock.Now().Add(pause)
	err = fmt.Errorf("%w: %w: it is started again after %.0f s", remote.ErrNoWorker, err, pause.Seconds())
	if p.ctx.Err() == nil {
		klog.FromContext(p.ctx).Error(err, "Discovery that runs in a process of its own stops for a while")
	}
	r.end(err)
}

// runChild starts a child and returns why it ended, or could not start.
func (p *Process) runChild(l *unixsocket.Listener) error {
	defer l.Close()
	runtime.LockOSThread() // the child is killed when the thread ends that started it
	defer runtime.UnlockOSThread()
	socket, err := l.File()
	if err != nil {
		return err
	}
	log, toLog := io.Pipe()
	child := p.command(socket, toLog)
	err = child.Start()
	socket.Close()
	l.Close() // so that connections end with the child
	if err != nil {
		return err
	}
	cause := make(chan string, 1)
	go func() { cause <- passOn(log, os.Stderr) }()
	err = child.Wait()
	toLog.Close()
	switch line := <-cause; {
	case err == nil:
		return errors.New("it exited")
	case line != "":
		return fmt.Errorf("%w: %s", err, line)
	}
	return err
}

// command is the child: nobody, with no environment and no descriptors but its socket and its log.
func (p *Process) command(socket *os.File, log io.Writer) *exec.Cmd {
	child := exec.CommandContext(p.ctx, self)
	child.Args = append([]string{"kubecri", Command}, p.args...)
	child.Env = []string{} // nil would be ours
	child.Dir = "/"
	child.ExtraFiles = []*os.File{socket}
	child.Stderr, child.WaitDelay = log, outputTime
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 { // no other user may be another one
		child.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534} // nobody
	}
	return child
}

// passOn passes on what a child logs, as much as it may, until its end. It returns the first 512 bytes
// of the line that says why the child ended.
func passOn(log io.Reader, to io.Writer) (cause string) {
	limit, reader := rate.NewLimiter(logBytesPerSecond, logBurstBytes), bufio.NewReaderSize(log, 512)
	for {
		line, err := reader.ReadSlice('\n')
		if cause == "" && (bytes.HasPrefix(line, []byte("panic: ")) || bytes.HasPrefix(line, []byte("fatal error: "))) {
			cause = strings.ToValidUTF8(strings.TrimSpace(string(line)), "?")
		}
		if limit.AllowN(time.Now(), len(line)) {
			_, _ = to.Write(line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return cause
		}
	}
}

// explain returns why the child ended, or err if it does not end.
func (r *run) explain(ctx context.Context, err error) error {
	select {
	case <-r.Done():
		return context.Cause(r)
	case <-time.After(reapTime):
	case <-ctx.Done():
	}
	return err
}

// connection is one to a child. When that ends, reading says why.
type connection struct {
	net.Conn
	ctx context.Context // the Discover's
	run *run
}

// Read implements net.Conn.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		err = c.run.explain(c.ctx, err)
	}
	return n, err
}
