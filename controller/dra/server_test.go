package dra

import (
	"errors"
	"strings"
	"testing"
	"time"

	apiversion "k8s.io/apimachinery/pkg/version"
	clocktesting "k8s.io/utils/clock/testing"
)

// The version is asked for at times, and the last one is known while the server does not answer.
func TestVersionOfTheServer(t *testing.T) {
	answer, asked := "", 0
	clock := clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
	s := &Server{Clock: clock, Ask: func() (*apiversion.Info, error) {
		if asked++; answer == "" {
			return nil, errors.New("no answer")
		}
		return &apiversion.Info{GitVersion: answer}, nil
	}}
	for i, step := range []struct {
		answer string
		later  time.Duration
		asked  int
		old    string // "" for not too old
	}{
		{"", 0, 1, ""},
		{"v1.35.1-gke.7", 0, 2, "needs Kubernetes 1.36 or newer, and the API server is 1.35.1"},
		{"v1.36.0", versionAgain / 2, 2, "is 1.35.1"},
		{"", versionAgain / 2, 3, "is 1.35.1"},
		{"v1.36.0", 0, 4, ""},
	} {
		answer = step.answer
		clock.SetTime(clock.Now().Add(step.later))
		old := s.TooOld()
		if !strings.Contains(old, step.old) || (old == "") != (step.old == "") || asked != step.asked {
			t.Errorf("step %d: %q, asked %d times; want %q and %d", i, old, asked, step.old, step.asked)
		}
	}
}
