package dra

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// extendedResources is the Kubernetes that has DRA's extended resources for good.
var extendedResources = version.MajorMinor(1, 37)

// versionAgain is when the API server is asked again for its version: it may have been upgraded.
const versionAgain = 10 * time.Minute

// Server knows the API server's version. Its methods may be called concurrently.
type Server struct {
	Ask   func() (*apiversion.Info, error)
	Clock clock.PassiveClock

	mu    sync.Mutex
	asked time.Time
	known *version.Version
}

// Version returns the API server's version as it was known at most 10 minutes ago, or was last known; nil
// when it never answered.
func (s *Server) Version() *version.Version {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known != nil && s.Clock.Since(s.asked) < versionAgain {
		return s.known
	}
	if info, err := s.Ask(); err == nil {
		if v, err := version.ParseGeneric(info.GitVersion); err == nil {
			s.known, s.asked = v, s.Clock.Now()
		}
	}
	return s.known
}

// TooOld says that the API server does not have what DRA needs; "" when it has, or its version is not known.
func (s *Server) TooOld() string {
	v := s.Version()
	if v == nil || v.AtLeast(v1alpha1.DRAMinVersion) {
		return ""
	}
	return fmt.Sprintf("spec.allocator DRA needs Kubernetes %s or newer, and the API server is %s: upgrade it, or set "+
		"spec.allocator to Slots", v1alpha1.DRAMinVersion, v)
}
