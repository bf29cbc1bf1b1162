package run

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"proa.dev/control"
	"proa.dev/server"
)

const (
	// probeTimeout is how long etcd may take to answer, and the watches to show that they are up to date.
	probeTimeout = 2 * time.Second
	// probePause is the time between probes of an etcd elsewhere, retryPause while something fails, and watchesPause the time between
	// probes of the watches.
	probePause, retryPause, watchesPause = time.Second, 250 * time.Millisecond, 5 * time.Second
)

// health is what is known about an etcd elsewhere and what depends on it. It is found out in the background, so that /livez and
// /readyz answer at once, also while etcd does not.
type health struct {
	mu        sync.Mutex // guards what follows
	failing   map[string]error
	elections []*control.Leadership
}

// addElection makes /readyz look after a Lease that this process contends for.
func (h *health) addElection(l *control.Leadership) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.elections = append(h.elections, l)
}

// set notes how a check went, and says whether that has changed.
func (h *health) set(name string, err error) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failing == nil {
		h.failing = map[string]error{}
	}
	changed = (h.failing[name] == nil) != (err == nil)
	h.failing[name] = err
	return changed
}

// of is how a check went last.
func (h *health) of(name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failing[name]
}

// leaders says whether each Lease that this process contends for has a holder.
func (h *health) leaders() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, l := range h.elections {
		errs = append(errs, l.Check())
	}
	return errors.Join(errs...)
}

// The checks of servers that share an etcd.
const (
	etcdCheck     = "etcd"
	watchesCheck  = "watches"
	electionCheck = "leader-election"
)

// checks are the parts of the server's health.
func (s *Server) checks() []server.Check {
	always := func(context.Context) error { return nil }
	etcd := s.store.Healthy
	if len(s.EtcdServers) > 0 {
		etcd = func(context.Context) error { return s.health.of(etcdCheck) }
	}
	out := []server.Check{
		{Name: "ping", Live: true, Probe: always},
		{Name: "log", Live: true, Probe: always},
		{Name: etcdCheck, Live: true, Probe: etcd},
		{Name: "poststarthook/start-cluster", Probe: func(context.Context) error {
			if !s.ready.Load() {
				return errStarting
			}
			return nil
		}},
	}
	if len(s.EtcdServers) > 0 {
		out = append(out,
			server.Check{Name: watchesCheck, Probe: func(context.Context) error { return s.health.of(watchesCheck) }},
			server.Check{Name: electionCheck, Probe: func(context.Context) error { return s.health.leaders() }})
	} else {
		// A restart would not help against a full disk.
		out = append(out, server.Check{Name: "storage-space", Probe: s.store.Room})
	}
	if s.Encryption != "" {
		out = append(out, server.Check{Name: "kms-providers", Probe: func(context.Context) error { return s.kms.health() }})
	}
	return append(out, server.Check{Name: "shutdown", Probe: func(context.Context) error {
		if s.stopping.Load() {
			return errStopping
		}
		return nil
	}})
}

var errEtcdAway = errors.New("etcd does not answer, and so no watch is up to date")

// watchHealth finds out how an etcd elsewhere does until ctx ends, and logs what changes.
func (s *Server) watchHealth(ctx context.Context) {
	var watchesAt time.Time
	for ctx.Err() == nil {
		err := s.probe(ctx)
		s.noteHealth(ctx, etcdCheck, err)
		switch {
		case err != nil: // what they show is as old as the failure
			s.noteHealth(ctx, watchesCheck, errEtcdAway)
		case time.Since(watchesAt) >= watchesPause:
			err = s.probeWatches(ctx)
			s.noteHealth(ctx, watchesCheck, err)
			watchesAt = time.Now()
		}
		s.noteHealth(ctx, electionCheck, s.health.leaders())
		pause := probePause
		if err != nil {
			pause, watchesAt = retryPause, time.Time{}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func (s *Server) noteHealth(ctx context.Context, name string, err error) {
	switch changed := ctx.Err() == nil && s.health.set(name, err); {
	case changed && err != nil:
		s.log.WarnContext(ctx, "a health check fails", "check", name, "err", err)
	case changed:
		s.log.InfoContext(ctx, "a health check passes again", "check", name)
	}
}

func (s *Server) probe(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, probeTimeout)
	defer stop()
	return s.store.Healthy(ctx)
}

// probeWatches asks for the progress of every cache and says which do not get there.
func (s *Server) probeWatches(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, probeTimeout)
	defer stop()
	rev, err := s.store.Fresh(ctx, "")
	if err != nil {
		return err
	}
	if err := s.store.Progress(ctx); err != nil {
		return err
	}
	for {
		behind := s.state.Behind(rev)
		if len(behind) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the watches of %s are behind revision %d", strings.Join(behind, ", "), rev)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
