package run

import (
	"context"
	"errors"
	"time"
)

// longRunningGrace is how long the server waits, once it has answered all other requests, for watches, logs that are followed and the like to end.
const longRunningGrace = 2 * time.Second

// errStopping is what the readiness check shutdown says of a server that stops.
var errStopping = errors.New("process is shutting down")

// shutdownSettings are the settings for the end of a server.
func shutdownSettings() []Setting {
	return []Setting{
		{Name: "shutdown-delay-duration", Help: "when the server is asked to stop, go on serving for `DURATION` with /readyz failing, so that load balancers notice; 0s if not said",
			Set: one(func(c *Config, v string) (err error) { c.ShutdownDelay, err = parseDuration(v); return err })},
		{Name: "shutdown-timeout", Help: "then let requests in flight finish for `DURATION` at most; 1m if not said, which is as long as a request may take",
			Set: one(func(c *Config, v string) (err error) { c.ShutdownTimeout, err = parseDuration(v); return err })},
	}
}

// StopTime is how long a server with this configuration may take to stop when it is asked to.
func (c *Config) StopTime() time.Duration {
	const rest = 20 * time.Second // to stop loops, nodes and the store
	return c.ShutdownDelay + c.ShutdownTimeout + 2*longRunningGrace + rest
}

// shutdown ends the API server as kube-apiserver does: it waits for the delay, accepts no connections any more, ends the watches and lets all other
// requests finish. Those that may last for hours, such as logs that are followed, do not hold it up.
func (s *Server) shutdown() {
	if s.listener == nil {
		return
	}
	time.Sleep(s.ShutdownDelay)
	s.front.EndWatches()
	ctx, stop := context.WithTimeout(context.Background(), s.ShutdownTimeout)
	defer stop()
	go func() {
		defer stop()
		if poll(ctx, func() bool { reading, writing := s.front.InFlight(); return reading+writing == 0 }) {
			wait(ctx, longRunningGrace)
		}
	}()
	if s.http.Shutdown(ctx) != nil {
		if reading, writing := s.front.InFlight(); reading+writing > 0 {
			s.log.Warn("requests did not finish before the server stopped", "reading", reading, "writing", writing, "waited", s.ShutdownTimeout)
		}
		_ = s.http.Close()
	}
	// HTTP/1 connections of WebSockets are not among those for which Shutdown waits.
	ended, stop := context.WithTimeout(context.Background(), longRunningGrace)
	defer stop()
	poll(ended, func() bool { return s.front.OpenWatches() == 0 })
}

// poll waits until a condition holds, and returns false when ctx ends before.
func poll(ctx context.Context, holds func() bool) bool {
	for !holds() {
		if !wait(ctx, 5*time.Millisecond) {
			return false
		}
	}
	return true
}

// wait waits for a time, and returns false when ctx ends before.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
