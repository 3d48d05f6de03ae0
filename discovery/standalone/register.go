package standalone

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery/unixsocket"
	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
	"github.com/kubeslot/kubeslot/wake"
)

const (
	// retryInterval paces registrations that failed, as Akri's handlers do.
	retryInterval = 10 * time.Second

	// lookInterval paces the looks at the agent's socket: an agent that starts makes it
	// anew and knows no handler. Akri's handlers, which do not look, stay forgotten when
	// they have no stream that could break.
	lookInterval = time.Second

	registerTimeout = 10 * time.Second
)

// registrar keeps a handler registered.
type registrar struct {
	agent   string // path of its socket
	request *pb.RegisterDiscoveryHandlerRequest
	lost    wake.Signal // the agent may have forgotten the handler
	// present returns an error when it is of no use to register any more.
	present func() error
}

// run registers at once, and again when the agent's socket is another one, after a
// stream broke, and after a failure. It returns nil when ctx ends, or present's error.
func (r *registrar) run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	look := time.NewTicker(lookInterval)
	defer look.Stop()
	var registeredWith unixsocket.Identity // of the socket at the last attempt
	var retryAt time.Time                  // zero for no retry
	due, told := true, ""
	for {
		if due {
			var err error
			if registeredWith, err = unixsocket.Identify(r.agent); err != nil {
				err = fmt.Errorf("no agent is there: %w", err)
			} else {
				err = r.register(ctx)
			}
			switch {
			case ctx.Err() != nil:
				return nil
			case err == nil:
				retryAt, told = time.Time{}, ""
				logger.Info("Registered", "agent", r.agent, "shared", r.request.GetShared())
			default:
				retryAt = time.Now().Add(retryInterval)
				if told != err.Error() {
					told = err.Error()
					logger.Error(err, "Cannot register yet", "agent", r.agent, "retryAfter", retryInterval)
				}
			}
		}
		// At most one registration an interval, however many streams break.
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
		if err := r.present(); err != nil {
			return err
		}
		agent, _ := unixsocket.Identify(r.agent)
		due = agent != registeredWith || !retryAt.IsZero() && !time.Now().Before(retryAt)
		select {
		case <-r.lost:
			due = true
		default:
		}
	}
}

func (r *registrar) register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///agent",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", r.agent)
		}),
		grpc.WithAuthority("localhost"),
		grpc.WithNoProxy())
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := pb.NewRegistrationClient(conn).RegisterDiscoveryHandler(ctx, r.request); err != nil {
		return fmt.Errorf("register with %s: %w", r.agent, err)
	}
	return nil
}
