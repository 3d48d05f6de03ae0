package webhook

import (
	"cmp"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const (
	month   = 30 * 24 * time.Hour
	service = "hook.ns.svc"
)

func mustPair(t *testing.T, now time.Time, replica string) *pair {
	return mustPairFor(t, service, now, replica)
}

func mustPairFor(t *testing.T, name string, now time.Time, replica string) *pair {
	t.Helper()
	p, err := newPair(now, name, replica, month)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// API servers whose clocks are wrong, by a day behind and ten ahead, take what is served.
func TestClocksThatAreWrong(t *testing.T) {
	roots := x509.NewCertPool()
	all := map[string]*pair{}
	for _, name := range []string{service, "127.0.0.1"} {
		all[name] = mustPairFor(t, name, start, "a")
		roots.AddCert(all[name].leaf)
	}
	p := all[service]
	for _, tc := range []struct {
		served, wrong time.Duration // how long it is served by its maker's clock, and how wrong the other is
		taken         bool
	}{
		{0, 0, true}, {0, -23 * time.Hour, true}, {0, -25 * time.Hour, false}, {20 * 24 * time.Hour, 9 * 24 * time.Hour, true}, {20 * 24 * time.Hour, 11 * 24 * time.Hour, false},
	} {
		for name, p := range all {
			_, err := p.leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: start.Add(tc.served + tc.wrong), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
			if (err == nil) != tc.taken {
				t.Errorf("%s, served for %s, a clock that is wrong by %s: %v", name, tc.served, tc.wrong, err)
			}
		}
	}
	if !p.renewAt().Equal(start.Add(20 * 24 * time.Hour)) {
		t.Errorf("renewed at %s", p.renewAt())
	}
	if _, err := p.leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "other.ns.svc", CurrentTime: start}); err == nil {
		t.Error("it is for every name")
	}
	if p.leaf.IsCA {
		t.Error("who has its key can sign others")
	}
}

func TestIsDue(t *testing.T) {
	serving, next := mustPair(t, start, "a"), mustPair(t, start.Add(20*24*time.Hour), "a")
	for name, tc := range map[string]struct {
		certificates
		after time.Duration
		name  string
		want  bool
	}{
		"none":                   {certificates{}, 0, "", true},
		"new":                    {certificates{serving: serving}, 0, "", false},
		"nearly":                 {certificates{serving: serving}, 20*24*time.Hour - time.Second, "", false},
		"a third is left":        {certificates{serving: serving}, 20 * 24 * time.Hour, "", true},
		"its successor is there": {certificates{serving: serving, next: next}, 20 * 24 * time.Hour, "", false},
		"its successor is old":   {certificates{serving: serving, next: next}, 40 * 24 * time.Hour, "", true},
		"over":                   {certificates{serving: serving}, 365 * 24 * time.Hour, "", true},
		"the clock was set back": {certificates{serving: serving}, -25 * time.Hour, "", true},
		"another name":           {certificates{serving: serving}, 0, "127.0.0.1", true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.isDue(start.Add(tc.after), cmp.Or(tc.name, service)); got != tc.want {
				t.Errorf("due: %t", got)
			}
		})
	}
}

// A successor is served when API servers have had time to hear of it, and at once when
// what is served is of no use.
func TestPromote(t *testing.T) {
	now := start.Add(20 * 24 * time.Hour)
	serving, next := mustPair(t, start, "a"), mustPair(t, now, "a")
	in, other := []*x509.Certificate{serving.leaf, next.leaf}, mustPairFor(t, "x.y.svc", start, "a")
	never := time.Time{}
	trusted := func(since time.Time) certificates { return certificates{serving, next, since} }
	for name, tc := range map[string]struct {
		certificates
		bundle []*x509.Certificate
		now    time.Time
		served *pair
		since  time.Time
	}{
		"not announced":  {trusted(never), in[:1], now, serving, never},
		"just announced": {trusted(never), in, now, serving, now},
		"not for long": {trusted(now.Add(-29 * time.Second)), in, now, serving,
			now.Add(-29 * time.Second)},
		"for long":                           {trusted(now.Add(-30 * time.Second)), in, now, next, never},
		"taken out again":                    {trusted(now.Add(-time.Hour)), in[:1], now, serving, never},
		"the clock is set back":              {trusted(now.Add(time.Hour)), in, now, serving, now},
		"none is served":                     {certificates{nil, next, never}, nil, now, next, never},
		"what is served is over":             {trusted(never), in[:1], start.Add(month), next, never},
		"what is served is for another name": {certificates{other, next, never}, nil, now, next, never},
		"no successor":                       {certificates{serving, nil, never}, nil, now, serving, never},
	} {
		t.Run(name, func(t *testing.T) {
			c := tc.certificates
			c.promote(tc.now, service, tc.bundle)
			if c.serving != tc.served || !c.trustedSince.Equal(tc.since) || tc.served == tc.next && c.next != nil {
				t.Errorf("served %v, since %s", c.serving.leaf.NotAfter, c.trustedSince)
			}
		})
	}
}

func TestBundle(t *testing.T) {
	mine, next, old := mustPair(t, start, "a"), mustPair(t, start, "a"), mustPair(t, start, "a")
	other, over := mustPair(t, start, "b"), mustPair(t, start.Add(-month), "b")
	stranger := &x509.Certificate{Raw: []byte("x"), SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "somebody's CA"}, NotAfter: start.Add(-time.Hour)}
	of := func(all ...*pair) (certificates []*x509.Certificate) {
		for _, p := range all {
			certificates = append(certificates, p.leaf)
		}
		return certificates
	}
	former := func(c *x509.Certificate) bool { return c.Equal(old.leaf) }
	for name, tc := range map[string]struct {
		certificates
		is, want []*x509.Certificate
	}{
		"empty":                      {certificates{serving: mine}, nil, of(mine)},
		"right":                      {certificates{serving: mine}, of(mine, other), of(mine, other)},
		"a successor":                {certificates{serving: mine, next: next}, of(other, mine), of(other, mine, next)},
		"one of an earlier process":  {certificates{serving: mine}, of(old, other), of(other, mine)},
		"another's that is over":     {certificates{serving: mine}, of(over, other, mine), of(other, mine)},
		"a stranger's, even if over": {certificates{serving: mine}, append(of(other), stranger), append([]*x509.Certificate{stranger}, of(other, mine)...)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.bundle(start, tc.is, former); !sameSet(got, tc.want) {
				t.Errorf("%d certificates %v, want %d", len(got), got, len(tc.want))
			}
		})
	}
	// A replica that is restarted again and again under new names fills no API object.
	var many []*pair
	for i := range 100 {
		many = append(many, mustPair(t, start.Add(time.Duration(i)*time.Minute), fmt.Sprint("r", i)))
	}
	c := certificates{serving: mine, next: next}
	got := c.bundle(start.Add(2*time.Hour), of(many...), former)
	if len(got) != maxBundle || !contains(got, mine.leaf) || !contains(got, next.leaf) || !contains(got, many[99].leaf) || contains(got, many[0].leaf) {
		t.Errorf("%d certificates of 102", len(got))
	}
	if text := writeBundle(got); len(text) > 64<<10 {
		t.Errorf("a caBundle of %d bytes", len(text))
	}
}

func TestReadBundle(t *testing.T) {
	p := mustPair(t, start, "a")
	text := writeBundle([]*x509.Certificate{p.leaf})
	garbage := "# a comment\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n-----BEGIN KEY-----\nAAAA\n-----END KEY-----\n"
	got := readBundle([]byte(garbage + string(text) + string(text) + "\nrest"))
	if len(got) != 1 || !got[0].Equal(p.leaf) {
		t.Errorf("read %d certificates", len(got))
	}
}

func TestReplicaName(t *testing.T) {
	if got := ReplicaName("node-1", ":10362"); got != "node-1 :10362" {
		t.Errorf("name %q", got)
	}
	long := string(make([]byte, 200))
	if a, b := ReplicaName(long+"a", "x"), ReplicaName(long+"b", "x"); len(a) > 64 || a == b {
		t.Errorf("names %q and %q", a, b)
	}
}
