package parthealth

import (
	"errors"
	"sync"
)

// CheckResults has the results of health checks that run in the background, so that /livez and /readyz answer at once
// while etcd does not. The zero value is ready for use.
type CheckResults struct {
	mu        sync.Mutex // guards what follows
	failing   map[string]error
	elections []func() error
}

// AddElection adds the check of a Lease that this process contends for.
func (h *CheckResults) AddElection(check func() error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.elections = append(h.elections, check)
}

// Set stores the result of a check, and tells whether the check fails or passes now and did not before.
func (h *CheckResults) Set(name string, err error) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failing == nil {
		h.failing = map[string]error{}
	}
	changed = (h.failing[name] == nil) != (err == nil)
	h.failing[name] = err
	return changed
}

// Result returns the last result of a check.
func (h *CheckResults) Result(name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failing[name]
}

// LeaderElections returns an error for each Lease that this process contends for and that has no holder.
func (h *CheckResults) LeaderElections() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, check := range h.elections {
		errs = append(errs, check())
	}
	return errors.Join(errs...)
}
