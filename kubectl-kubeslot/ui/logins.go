package ui

import (
	"net/netip"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/kubeslot/kubeslot/serve"
)

const (
	// loginRate is how many sessions a second one client address may begin, and loginBurst how many
	// at once: those of users behind one proxy after a restart.
	loginRate, loginBurst = 1, 20
	// allRate and allBurst are those of all addresses: each asks the API server whose the token is.
	allRate, allBurst = 10, 50
	// loginAddresses is how many addresses are remembered: those that were used last.
	loginAddresses = 1024
)

// logins limits how fast sessions are begun, by logging in or with a header. Its methods are called
// one at a time.
type logins struct {
	clock     clock.PassiveClock
	all       *rate.Limiter
	addresses *lru.Cache // netip.Prefix to *rate.Limiter
}

func newLogins(c clock.PassiveClock) *logins {
	return &logins{clock: c, all: rate.NewLimiter(allRate, allBurst), addresses: lru.New(loginAddresses)}
}

// accept reports whether one more session may be begun from the address, which is host:port.
func (l *logins) accept(remote string) bool {
	var client netip.Prefix
	if address, err := netip.ParseAddrPort(remote); err == nil {
		client = serve.Client(address.Addr())
	}
	own, known := l.addresses.Get(client)
	if !known {
		own = rate.NewLimiter(loginRate, loginBurst)
		l.addresses.Add(client, own)
	}
	now := l.clock.Now()
	return own.(*rate.Limiter).AllowN(now, 1) && l.all.AllowN(now, 1)
}
