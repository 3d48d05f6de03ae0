package onvif

import (
	"context"
	"encoding/xml"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// maxValueBytes bounds what becomes an environment variable.
const maxValueBytes = 64

type dateAndTimeResponse struct {
	XMLName           xml.Name
	SystemDateAndTime struct{ UTCDateTime *dateTime }
}

// dateTime has texts, since a camera whose clock is broken is a camera.
type dateTime struct {
	Time struct{ Hour, Minute, Second string }
	Date struct{ Year, Month, Day string }
}

// time returns false for a time that is none. Fields beyond their range carry over.
func (d *dateTime) time() (time.Time, bool) {
	if d == nil {
		return time.Time{}, false
	}
	var n [6]int
	for i, text := range []string{d.Date.Year, d.Date.Month, d.Date.Day, d.Time.Hour, d.Time.Minute, d.Time.Second} {
		var err error
		if n[i], err = strconv.Atoi(strings.TrimSpace(text)); err != nil || n[i] < 0 || n[i] > 9999 {
			return time.Time{}, false
		}
	}
	return time.Date(n[0], time.Month(n[1]), n[2], n[3], n[4], n[5], 0, time.UTC), true
}

func (r dateAndTimeResponse) element() xml.Name { return r.XMLName }

// isThere asks a service whether it is there, with an operation that needs no login,
// and returns how far the camera's clock is ahead of ours. It is there if it speaks
// SOAP, or wants a login: some cameras want one even for their time.
func (c *client) isThere(ctx context.Context, t target) (offset time.Duration, err error) {
	const operation = "GetSystemDateAndTime"
	sent := time.Now()
	response, text, err := c.post(ctx, t, operation, "", "")
	if err != nil {
		return 0, asked(t, operation, err)
	}
	// The camera looked at its clock between the two.
	now := sent.Add(time.Since(sent) / 2)
	answer, err := read[dateAndTimeResponse](operation, response, text)
	var f *fault
	if err != nil && !errors.Is(err, errNotAuthorized) && !errors.As(err, &f) {
		return 0, asked(t, operation, err)
	}
	if camera, ok := answer.SystemDateAndTime.UTCDateTime.time(); ok {
		return clockOffset(camera, now), nil
	}
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		return clockOffset(date, now), nil
	}
	return 0, nil
}

// clockOffset counts that the camera tells whole seconds, cut off.
func clockOffset(camera, now time.Time) time.Duration {
	return camera.Add(500 * time.Millisecond).Sub(now)
}

// network is what a camera tells of its network interfaces. Both may be empty.
type network struct{ ip, mac string }

type networkInterfacesResponse struct {
	XMLName           xml.Name
	NetworkInterfaces []struct {
		Info struct{ HwAddress string }
		IPv4 struct {
			Config struct {
				Addresses []struct{ Address string } `xml:",any"` // Manual, LinkLocal, FromDHCP
			}
		}
	}
}

func (r networkInterfacesResponse) element() xml.Name { return r.XMLName }

// network asks for the camera's addresses. l is nil when there is no login for it.
func (c *client) network(ctx context.Context, t target, l *login, offset time.Duration) (network, error) {
	const operation = "GetNetworkInterfaces"
	answer, err := call[networkInterfacesResponse](ctx, c, t, operation, l, offset)
	if err != nil {
		return network{}, asked(t, operation, err)
	}
	return answer.network(hostAddress(t.xaddr)), nil
}

// network returns the first MAC and IPv4 addresses, as Akri; but if one of the
// addresses is the one asked, that: a camera that uses DHCP may still have its maker's
// static address as the first.
func (r networkInterfacesResponse) network(asked netip.Addr) (n network) {
	for _, i := range r.NetworkInterfaces {
		if mac := strings.TrimSpace(i.Info.HwAddress); n.mac == "" && isMAC(mac) {
			n.mac = mac
		}
		for _, a := range i.IPv4.Config.Addresses {
			address, err := netip.ParseAddr(strings.TrimSpace(a.Address))
			if err == nil && (n.ip == "" || address == asked) {
				n.ip = address.String()
			}
		}
	}
	return n
}

// isMAC is lenient: cameras write it in various ways.
func isMAC(text string) bool {
	return text != "" && len(text) <= maxValueBytes &&
		!strings.ContainsFunc(text, func(r rune) bool { return !strings.ContainsRune("0123456789abcdefABCDEF:-. ", r) })
}

// call calls an operation that may need a login. It tries a WS-UsernameToken first,
// and HTTP digest when the camera asks for that. ONVIF Core 5.9.1 has the order, and
// that no request has both.
func call[T answerOf](ctx context.Context, c *client, t target, operation string, l *login, offset time.Duration) (content T, err error) {
	header := ""
	if l != nil {
		header = usernameToken(*l, time.Now().Add(offset))
	}
	response, text, err := c.post(ctx, t, operation, header, "")
	if err != nil {
		return content, err
	}
	content, err = read[T](operation, response, text)
	if err == nil || l == nil || !errors.Is(err, errNotAuthorized) {
		return content, err
	}
	if best, ok := bestChallenge(response.Header.Values("WWW-Authenticate")); ok && response.StatusCode == http.StatusUnauthorized {
		u, err := url.Parse(t.xaddr)
		if err != nil {
			return content, err
		}
		if response, text, err = c.post(ctx, t, operation, "", best.authorization(*l, http.MethodPost, u.RequestURI())); err != nil {
			return content, err
		}
		return read[T](operation, response, text)
	}
	// Perhaps the camera's clock was set since. Not again for the same time: cameras
	// lock out who fails to log in too often.
	now, clockErr := c.isThere(ctx, t)
	if clockErr != nil || (now-offset).Abs() < 2*time.Second {
		return content, err
	}
	if response, text, err = c.post(ctx, t, operation, usernameToken(*l, time.Now().Add(now)), ""); err != nil {
		return content, err
	}
	return read[T](operation, response, text)
}
