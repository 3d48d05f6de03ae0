package agent

import "sync"

// registry has the sessions, and says when anything in them changes.
type registry struct {
	mu       sync.RWMutex
	ready    bool                // the caches have synced
	sessions map[string]*session // what is discovered, by Configuration name
	// changed is closed and replaced whenever ready or sessions, or anything in
	// them, changes: see WaitDevice.
	changed chan struct{}
}

// announce wakes those who wait for r.changed. r.mu must be held.
func (r *registry) announce() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// runs reports whether the session is still the Configuration's. registry.mu must be held.
func (r *registry) runs(s *session) bool { return r.sessions[s.configuration.Name] == s }
