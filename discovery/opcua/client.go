package opcua

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/kubeslot/kubeslot/discovery/netif"
)

const (
	dialTimeout     = 3 * time.Second // as Akri's
	channelLifetime = time.Minute
	// maxRecords is how many servers are taken of a discovery server's network, in
	// pages of recordsAtOnce.
	maxRecords    = 1000
	recordsAtOnce = 100
)

// client is a connection to a server, with a secure channel that has no security, as
// every server grants for discovery (Part 4, 5.5.1). It is for one goroutine, and
// starts none: whatever goes wrong here does so under the caller's recover.
type client struct {
	frames
	ctx            context.Context // dial's
	stop           func() bool     // ends the watch of it
	url            string
	channel, token uint32
	sequence       uint32 // number of the last message, which is also the last request's
	limit          int    // bytes of an answer
	large          bool   // it has one of large
}

// dial connects to a server and opens a channel. When ctx ends, so do this and all
// calls of the client.
func dial(ctx context.Context, at target) (*client, error) {
	connecting, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := (&net.Dialer{ControlContext: netif.Allow(at.allowed)}).DialContext(connecting, "tcp", at.address())
	if err != nil {
		return nil, err
	}
	c := &client{frames: frames{conn: conn}, ctx: ctx, url: at.url, limit: maxMessageBytes}
	c.stop = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err = c.hello()
	if err == nil {
		err = c.open()
	}
	if err != nil {
		c.hangUp()
		return nil, err
	}
	return c, nil
}

// hello agrees on the sizes of frames (Part 6, 7.1.3).
func (c *client) hello() error {
	if err := c.write("HELF", hello(c.url)); err != nil {
		return err
	}
	// What the server takes does not matter: requests are far below the 8 KiB that each
	// must take.
	kind, _, err := c.read()
	if err == nil && kind != "ACKF" {
		err = fmt.Errorf("not OPC UA: %q for an answer to Hello", kind)
	}
	return err
}

// open opens the secure channel.
func (c *client) open() error {
	message, err := c.request("OPNF", asymmetricHeader(), openSecureChannel())
	if err != nil {
		return fmt.Errorf("open a channel: %w", err)
	}
	c.channel, c.token, err = readChannel(message)
	return err
}

// close ends the channel and the connection.
func (c *client) close() {
	_ = c.send("CLOF", words(c.token), closeSecureChannel())
	c.hangUp()
}

// near is whether the server is on this node.
func (c *client) near() bool {
	return netif.CheckOther(c.conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()) != nil
}

func (c *client) hangUp() {
	c.stop()
	c.conn.Close()
	if c.large {
		<-large
	}
}

// findServers returns the applications that the server knows: itself, and of a
// discovery server, those that have registered with it.
func (c *client) findServers() ([]application, error) {
	message, err := c.request("MSGF", words(c.token), findServers(c.url))
	if err != nil {
		return nil, fmt.Errorf("FindServers: %w", err)
	}
	list, err := readApplications(message)
	if err != nil {
		return nil, fmt.Errorf("FindServers: %w", err)
	}
	return list, nil
}

// findServersOnNetwork returns the servers that a discovery server knows from its
// network, by multicast: at most maxRecords.
func (c *client) findServersOnNetwork() (list []record, err error) {
	next := uint32(0)
	for len(list) < maxRecords {
		message, err := c.request("MSGF", words(c.token), findServersOnNetwork(next))
		if err != nil {
			return nil, fmt.Errorf("FindServersOnNetwork: %w", err)
		}
		page, err := readRecords(message)
		if err != nil {
			return nil, fmt.Errorf("FindServersOnNetwork: %w", err)
		}
		list = append(list, page...)
		// A server that does not heed the first number would be asked for ever.
		if len(page) < recordsAtOnce || page[len(page)-1].id < next {
			break
		}
		next = page[len(page)-1].id + 1
	}
	return list[:min(len(list), maxRecords)], nil
}

// send sends a request, which fits one frame. security is the frame's security header.
func (c *client) send(kind string, security []byte, r request) error {
	c.sequence++
	return c.write(kind, words(c.channel), security, words(c.sequence, c.sequence), r.encode(c.sequence, time.Now()))
}

// request sends a request and returns the response, put together from its chunks (Part
// 6, 6.7).
func (c *client) request(kind string, security []byte, sent request) (message []byte, err error) {
	if err := c.send(kind, security, sent); err != nil {
		return nil, err
	}
	for {
		got, body, err := c.read()
		if err != nil {
			return nil, err
		}
		if got[:3] != kind[:3] {
			return nil, fmt.Errorf("not OPC UA: %q for an answer to %q", got, kind)
		}
		r := &reader{rest: body}
		r.uint32() // channel
		if kind[:3] == "OPN" {
			if policy := r.string(); r.err == nil && policy != securityPolicyNone {
				return nil, fmt.Errorf("the server answers with the security policy %.100q", policy)
			}
			r.string()
			r.string()
		} else {
			r.uint32() // token
		}
		r.uint32() // sequence number
		answers := r.uint32()
		switch {
		case r.err != nil:
			return nil, r.err
		case answers != c.sequence:
			return nil, fmt.Errorf("not OPC UA: an answer to request %d, want %d", answers, c.sequence)
		case len(message)+len(r.rest) > c.limit:
			return nil, fmt.Errorf("an answer of more than %d bytes", c.limit)
		case len(message)+len(r.rest) > largeBytes && !c.large:
			select {
			case large <- struct{}{}:
				c.large = true
			case <-c.ctx.Done():
				return nil, fmt.Errorf("an answer of more than %d bytes, of which %d are read at a time", largeBytes,
					maxLarge)
			}
		}
		switch got[3] {
		case finalChunk:
			return append(message, r.rest...), nil
		case continuedChunk:
			message = append(message, r.rest...)
		case abortedChunk:
			return nil, fmt.Errorf("the server broke off: %w", statusCode(r.uint32()))
		default:
			return nil, fmt.Errorf("not OPC UA: a chunk of type %q", got)
		}
	}
}
