package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"proa.dev/internal/wait"
	"proa.dev/server/healthz"
)

const (
	// probeTimeout is how long etcd may take to answer, and the caches to catch up.
	probeTimeout = 2 * time.Second
	// probePause is the time between probes of an external etcd, retryPause the same while a probe fails, and
	// watchesPause the time between probes of the caches.
	probePause, retryPause, watchesPause = time.Second, 250 * time.Millisecond, 5 * time.Second
)

// The checks that have different probes, or exist only, where servers share an etcd.
const (
	etcdCheck     = "etcd"
	watchesCheck  = "watches"
	electionCheck = "leader-election"
)

// started returns an error until the server has started.
func (s *Server) started(context.Context) error {
	if !s.ready.Load() {
		return errStarting
	}
	return nil
}

// checks returns the health checks of the server.
func (s *Server) checks() []healthz.Check {
	always := func(context.Context) error { return nil }
	etcd := s.store.Healthy
	if len(s.EtcdServers) > 0 {
		etcd = func(context.Context) error { return s.health.Result(etcdCheck) }
	}
	out := []healthz.Check{
		{Name: "ping", Live: true, Probe: always},
		{Name: "log", Live: true, Probe: always},
		{Name: etcdCheck, Live: true, Probe: etcd},
		{Name: "etcd-readiness", Probe: etcd},
		{Name: "informer-sync", Probe: s.started},
		{Name: "poststarthook/start-cluster", Probe: s.started},
	}
	for _, name := range healthz.StartHooks() {
		// As upstream's they belong to /livez too, which so fails while the server starts.
		out = append(out, healthz.Check{Name: name, Live: true, Probe: s.started})
	}
	if len(s.EtcdServers) > 0 {
		out = append(out,
			healthz.Check{Name: watchesCheck, Probe: func(context.Context) error { return s.health.Result(watchesCheck) }},
			healthz.Check{Name: electionCheck, Probe: func(context.Context) error { return s.health.LeaderElections() }})
	} else {
		// A restart would not help against a full disk.
		out = append(out, healthz.Check{Name: "storage-space", Probe: s.store.Room},
			healthz.Check{Name: watchesCheck, Probe: func(context.Context) error { return checkLags(s.state.CacheLags()) }})
	}
	if s.Encryption != "" {
		out = append(out, healthz.Check{Name: "kms-providers", Probe: func(context.Context) error { return s.encryption.Health() }})
	}
	return append(out, healthz.Check{Name: "shutdown", Probe: func(context.Context) error {
		if s.stopping.Load() {
			return errStopping
		}
		return nil
	}})
}

// checkLags returns an error that names the caches which do not keep up with the writes of this server: lags has how many
// seconds each is behind. Writers are held back long before that.
func checkLags(lags map[string]float64) error {
	var behind []string
	for resource, seconds := range lags {
		if seconds > probeTimeout.Seconds() {
			behind = append(behind, fmt.Sprintf("%s by %.0f s", resource, seconds))
		}
	}
	if len(behind) == 0 {
		return nil
	}
	slices.Sort(behind)
	return fmt.Errorf("caches are behind the store: %s", strings.Join(behind, ", "))
}

// errEtcdAway is why the caches count as behind while etcd does not answer.
var errEtcdAway = errors.New("etcd does not answer, and so no watch is up to date")

// watchHealth probes an external etcd and the caches until ctx ends, and logs changes. It runs in the background, so
// that /livez and /readyz answer at once while etcd does not.
func (s *Server) watchHealth(ctx context.Context) {
	var watchesAt time.Time
	for ctx.Err() == nil {
		err := s.probe(ctx)
		s.noteHealth(ctx, etcdCheck, err)
		switch {
		case err != nil: // the caches cannot be newer than the failure
			s.noteHealth(ctx, watchesCheck, errEtcdAway)
		case time.Since(watchesAt) >= watchesPause:
			err = s.probeWatches(ctx)
			s.noteHealth(ctx, watchesCheck, err)
			watchesAt = time.Now()
		}
		s.noteHealth(ctx, electionCheck, s.health.LeaderElections())
		pause := probePause
		if err != nil {
			pause, watchesAt = retryPause, time.Time{}
		}
		_ = wait.Sleep(ctx, pause) // the loop ends with ctx
	}
}

// noteHealth stores the result of a check, and logs it if it has changed.
func (s *Server) noteHealth(ctx context.Context, name string, err error) {
	switch changed := ctx.Err() == nil && s.health.Set(name, err); {
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

// probeWatches requests a progress notification from etcd and waits until every cache has received it. The error names
// those that have not.
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
		if wait.Sleep(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("the watches of %s are behind revision %d", strings.Join(behind, ", "), rev)
		}
	}
}
