package opcua

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// named is what came of asking the URL that a server names as its own, though it answered
// at another one: behind NAT or in a container it may name one that nobody else reaches.
type named struct {
	url string // as it was asked last; empty before
	err error
}

// probe returns nil if an application with the URI is at a URL, or why it is not.
type probe func(ctx context.Context, at target, uri string) error

// check asks a URL once, for as long as the server names the same: a device that changes
// its ID with each lost packet is of no use.
func (n *named) check(ctx context.Context, at target, uri string, answers probe) error {
	if n.url != at.url {
		*n = named{at.url, answers(ctx, at, uri)}
	}
	return n.err
}

// attempts is how often a URL is asked before it counts as unreachable: one lost packet must not
// give a server another ID.
const attempts = 3

// answersAs is a probe by FindServers.
func answersAs(ctx context.Context, at target, uri string) (err error) {
	for range attempts {
		if err = answersOnce(ctx, at, uri); err == nil || ctx.Err() != nil {
			break
		}
	}
	return err
}

func answersOnce(ctx context.Context, at target, uri string) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var list []application
	c, err := dial(ctx, at)
	if err == nil {
		defer c.close()
		c.limit = maxAnswerOfLearned
		list, err = c.findServers()
	}
	var refused statusCode
	switch {
	case errors.As(err, &refused): // as when it has no more channels: it is there
		return nil
	case err != nil:
		return cause(err)
	case !slices.ContainsFunc(list, func(a application) bool { return a.uri == uri }):
		return fmt.Errorf("another server answers, which is not %.100q", uri)
	}
	return nil
}
