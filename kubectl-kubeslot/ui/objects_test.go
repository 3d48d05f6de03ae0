package ui

import (
	"bufio"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/kubeslot/kubeslot/test/await"
)

// reads is how many caches there are.
func (s *Sessions) reads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.caches)
}

// Users who may list the same share what is read, and nobody else does.
func TestUsersWithTheSamePermissionsShare(t *testing.T) {
	api := newAPIServer(t)
	api.users["auditors"], api.users["bobs"], api.names["bobs"] = "*", "bob", "system:serviceaccount:bob:viewer"
	sessions, server := sessionsOf(t, api, 10, clock.RealClock{})
	for _, tc := range []struct {
		token  string
		sees   []string
		caches int
	}{
		{"admins", []string{"alices-pod", "bobs-pod"}, 1},
		{"auditors", []string{"alices-pod", "bobs-pod"}, 1},
		{"alices", []string{"alices-pod"}, 2},
		{"bobs", []string{"bobs-pod"}, 3},
	} {
		c := client(t, server)
		login(t, c, server, tc.token, "")
		_, update := firstUpdate(t, c, server)
		for _, pod := range []string{"alices-pod", "bobs-pod"} {
			if want := strings.Contains(strings.Join(tc.sees, " "), pod); strings.Contains(update, pod) != want {
				t.Errorf("%s sees %s: %t, want %t", tc.token, pod, !want, want)
			}
		}
		if got := sessions.reads(); got != tc.caches {
			t.Errorf("with %s there are %d caches, want %d", tc.token, got, tc.caches)
		}
	}
	if got := api.counted(api.lists, "pods"); got != 3 {
		t.Errorf("pods were listed %d times, want once for each cache", got)
	}
}

// What is shared is read with the token of somebody who is there: it goes on with another's when
// that one logs out, and ends with the last.
func TestTokensAreUsedForTheirSessionsAlone(t *testing.T) {
	api := newAPIServer(t)
	api.users["auditors"] = "*"
	sessions, server := sessionsOf(t, api, 10, clock.RealClock{})
	admin, auditor := client(t, server), client(t, server)
	login(t, admin, server, "admins", "")
	login(t, auditor, server, "auditors", "")
	watches := func(token string, want int) func() bool {
		return func() bool { return api.counted(api.open, token) == want }
	}
	await.That(t, "the watches of the first", watches("admins", kinds))
	if _, err := admin.Post(server.URL+"/logout", "", nil); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the watches of the first to end", watches("admins", 0))
	await.That(t, "those of the second to begin", watches("auditors", kinds))
	if _, err := auditor.Post(server.URL+"/logout", "", nil); err != nil {
		t.Fatal(err)
	}
	await.That(t, "all watches to end", watches("auditors", 0))
	if got := sessions.reads(); got != 0 {
		t.Errorf("%d caches are left of nobody", got)
	}
}

// kinds is how many are watched.
const kinds = 8

// Who shares a cache, and may no longer list what is in it, loses the page; the others keep it.
func TestSharingEndsWithThePermission(t *testing.T) {
	for name, withdraw := range map[string]func(*apiServer){
		"revoked":       func(api *apiServer) { delete(api.users, "auditors") },
		"fewer":         func(api *apiServer) { api.users["auditors"] = "alice" },
		"not confirmed": func(api *apiServer) { api.fails["auditors"] = "list" },
	} {
		t.Run(name, func(t *testing.T) {
			api := newAPIServer(t)
			api.users["auditors"] = "*"
			c := testclock.NewFakeClock(time.Now())
			sessions, server := sessionsOf(t, api, 10, c)
			admin, auditor := client(t, server), client(t, server)
			login(t, admin, server, "admins", "")
			login(t, auditor, server, "auditors", "")
			streamOf(t, admin, server.URL)
			_, lines := streamOf(t, auditor, server.URL)
			// Each session waits for its ticker, and their Hub for the end of its pause.
			await.That(t, "both sessions to wait for the clock", func() bool { return c.Waiters() >= 3 })
			api.change(func() { withdraw(api) })
			c.Step(check)
			await.That(t, "the session to end, and the other's to stay",
				func() bool { return sessions.sessions() == 1 })
			for lines.Scan() { // it is closed
			}
			if response, _ := get(t, admin, server.URL+"/api/pods/bob/bobs-pod",
				nil); response.StatusCode != http.StatusOK {
				t.Errorf("the other gets %s", response.Status)
			}
			if response, _ := get(t, auditor, server.URL+"/api/pods/bob/bobs-pod",
				nil); response.StatusCode == http.StatusOK {
				t.Error("a pod is shown to who may not list it")
			}
		})
	}
}

// A user who may list and not watch keeps nobody's objects from being up to date.
func TestATokenThatIsRefusedIsNotUsed(t *testing.T) {
	api := newAPIServer(t)
	api.users["listers"], api.fails["listers"] = "*", "watch"
	sessions, server := sessionsOf(t, api, 10, clock.RealClock{})
	lister, admin := client(t, server), client(t, server)
	login(t, lister, server, "listers", "")
	shared := func() *objects {
		sessions.mu.Lock()
		defer sessions.mu.Unlock()
		for _, o := range sessions.caches {
			return o
		}
		return nil
	}()
	await.That(t, "the error of the watches", func() bool { return shared.live.Err() != nil })
	if text := shared.live.Err().Error(); strings.Contains(text, "listers") {
		t.Errorf("users who share are shown %s, which names another", text)
	}
	login(t, admin, server, "admins", "")
	await.That(t, "the watches of who may watch", func() bool { return api.counted(api.open, "admins") == kinds })
	await.That(t, "the objects to be up to date", func() bool { return shared.live.Err() == nil })
}

// One user has a few sessions, and cannot take those of others.
func TestSessionsOfAUserAreBounded(t *testing.T) {
	api := newAPIServer(t)
	for _, token := range []string{"first", "second", "third", "fourth"} {
		api.users[token], api.names[token] = "*", "eve"
	}
	_, server := sessionsOf(t, api, 10, clock.RealClock{})
	stream := func(token string) *bufio.Scanner {
		c := client(t, server)
		login(t, c, server, token, "")
		_, lines := streamOf(t, c, server.URL)
		return lines
	}
	for _, token := range []string{"first", "second", "third"} {
		stream(token)
	}
	c := client(t, server)
	response, err := c.PostForm(server.URL+"/login", map[string][]string{"token": {"fourth"}})
	if err != nil {
		t.Fatal(err)
	}
	text := body(t, response)
	if response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(text, "you have 3 sessions of this") {
		t.Errorf("a fourth session of one user: %s\n%s", response.Status, text)
	}
	stream("admins") // another user is not kept out
}

// One address can begin few sessions a second, and others are served meanwhile.
func TestLoginsAreLimited(t *testing.T) {
	c := testclock.NewFakeClock(time.Now())
	l := newLogins(c)
	accepted := func(address string, tries int) (n int) {
		for range tries {
			if l.accept(address) {
				n++
			}
		}
		return n
	}
	if got := accepted("192.0.2.1:1", 100); got != loginBurst {
		t.Errorf("%d of one address are accepted at once, want %d", got, loginBurst)
	}
	if got := accepted("192.0.2.1:2", 1) + accepted("[::ffff:192.0.2.1]:3", 1); got != 0 {
		t.Error("another port counts as another address")
	}
	if got := accepted("192.0.2.2:1", 1); got != 1 {
		t.Error("another address is refused")
	}
	c.Step(time.Second)
	if got := accepted("192.0.2.1:1", 10); got != loginRate {
		t.Errorf("%d are accepted after a second, want %d", got, loginRate)
	}
	for i := range 100 { // of a /64, which one machine has
		accepted("[2001:db8::"+strings.Repeat("1", 1+i%4)+"]:1", 1)
	}
	if got := accepted("[2001:db8::9]:1", 1); got != 0 {
		t.Error("another address of the same /64 is not limited")
	}
	c.Step(time.Minute)
	total := 0
	for i := range 100 {
		total += accepted("198.51.100."+string(rune('0'+i%10))+":1", 1)
	}
	if total != allBurst {
		t.Errorf("%d of many addresses are accepted at once, want %d", total, allBurst)
	}
}
