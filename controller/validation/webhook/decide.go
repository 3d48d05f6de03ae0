package webhook

import (
	"crypto/x509"
	"slices"
	"time"
)

const (
	// maxBundle is how many certificates of ours a caBundle has: those of all replicas,
	// two each while one is renewed, and of replicas that are gone, until they end.
	maxBundle = 32
	// maxSettle is how long a new certificate is in the caBundle before it is served, so
	// that all API servers have heard of it.
	maxSettle = 30 * time.Second
	// lookInterval is the longest time between two looks: timers do not count the time
	// that a machine sleeps, and clocks are set.
	lookInterval = time.Minute
)

// certificates are those of this process. There is serving as soon as there is a
// webhook; next is its successor, which API servers have to hear of first.
type certificates struct {
	serving, next *pair
	// trustedSince is when next was first seen in the caBundle; zero when it was not.
	trustedSince time.Time
}

// isDue reports whether another certificate has to be made: for a name that the newest
// one is not for, before it ends, and when the clock was set back before its beginning.
func (c *certificates) isDue(now time.Time, name string) bool {
	newest := c.next
	if newest == nil {
		newest = c.serving
	}
	return newest == nil || !newest.covers(name) || !newest.validAt(now) || !now.Before(newest.renewAt())
}

// promote serves next when API servers trust it, or when what is served is of no use.
func (c *certificates) promote(now time.Time, name string, bundle []*x509.Certificate) {
	if c.next == nil {
		return
	}
	switch {
	case !contains(bundle, c.next.leaf):
		c.trustedSince = time.Time{}
	case c.trustedSince.IsZero() || c.trustedSince.After(now):
		c.trustedSince = now
	}
	useless := c.serving == nil || !c.serving.covers(name) || !c.serving.validAt(now)
	settled := !c.trustedSince.IsZero() && now.Sub(c.trustedSince) >= c.next.settle()
	if useless || settled {
		*c = certificates{serving: c.next}
	}
}

// settle is how long the certificate is announced before it is served.
func (p *pair) settle() time.Duration {
	return min(maxSettle, p.leaf.NotAfter.Sub(p.made)/10)
}

// again is when there is something to do next.
func (c *certificates) again(now time.Time) time.Duration {
	wait := lookInterval
	if c.serving != nil && c.next == nil {
		wait = min(wait, c.serving.renewAt().Sub(now))
	}
	if c.next != nil && !c.trustedSince.IsZero() {
		wait = min(wait, c.trustedSince.Add(c.next.settle()).Sub(now))
	}
	return max(wait, time.Millisecond)
}

// bundle returns what the caBundle should be, given what it is: others' certificates as
// they are, without those of ours that have ended, and this process's. former says which
// others are of no use any more.
func (c *certificates) bundle(now time.Time, is []*x509.Certificate, former func(*x509.Certificate) bool) []*x509.Certificate {
	var mine []*x509.Certificate
	for _, p := range []*pair{c.serving, c.next} {
		if p != nil {
			mine = append(mine, p.leaf)
		}
	}
	var others, strangers []*x509.Certificate
	for _, have := range is {
		switch {
		case !ours(have):
			strangers = append(strangers, have)
		case !contains(mine, have) && !former(have) && now.Before(have.NotAfter):
			others = append(others, have)
		}
	}
	if n := maxBundle - len(mine); len(others) > n {
		slices.SortStableFunc(others, func(a, b *x509.Certificate) int { return b.NotBefore.Compare(a.NotBefore) })
		others = others[:n]
	}
	return slices.Concat(strangers, others, mine)
}

func sameSet(a, b []*x509.Certificate) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(c *x509.Certificate) bool { return !contains(b, c) })
}
