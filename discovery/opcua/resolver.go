package opcua

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// lookupTimeout is for all hosts together that one answer names.
	lookupTimeout = 2 * time.Second
	lookupsAtOnce = 16
)

// resolver finds out which hosts this machine's resolver knows. It is not for
// concurrent use.
type resolver struct {
	lookup func(ctx context.Context, host string) ([]string, error) // safe for concurrent use
	last   map[string]bool                                          // the last answers
}

// known says of each host whether it is an address or a name that resolves. While the
// name servers do not answer, the last answer holds, so that a server does not become
// another device because of them; the first is no.
func (r *resolver) known(ctx context.Context, servers []server) map[string]bool {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	answers := map[string]bool{}
	var mu sync.Mutex
	var lookups errgroup.Group
	lookups.SetLimit(lookupsAtOnce)
	for _, s := range servers {
		for _, t := range s.own {
			mu.Lock()
			_, asked := answers[t.host]
			if !asked {
				answers[t.host] = r.last[t.host]
			}
			mu.Unlock()
			if asked {
				continue
			}
			lookups.Go(func() error {
				if answer, definite := r.one(ctx, t.host); definite {
					mu.Lock()
					defer mu.Unlock()
					answers[t.host] = answer
				}
				return nil
			})
		}
	}
	_ = lookups.Wait()
	r.last = answers
	return answers
}

// one looks a host up. The answer is definite unless the lookup failed.
func (r *resolver) one(ctx context.Context, host string) (known, definite bool) {
	if _, err := netip.ParseAddr(host); err == nil {
		return true, true
	}
	_, err := r.lookup(ctx, host)
	var failed *net.DNSError
	return err == nil, err == nil || errors.As(err, &failed) && failed.IsNotFound
}
