package run

import (
	"context"
	"errors"
	"time"

	"proa.dev/internal/wait"
	"proa.dev/run/settings"
)

// errStopping is the result of the readiness check shutdown while the server stops.
var errStopping = errors.New("process is shutting down")

// shutdown stops the API server as kube-apiserver stops: after the delay it accepts no new connections, ends the
// watches and lets other requests finish. Requests that may last for hours, such as followed logs, do not delay it.
func (s *Server) shutdown() {
	if s.listener == nil {
		return
	}
	time.Sleep(s.ShutdownDelay)
	s.pipeline.EndWatches()
	ctx, stop := context.WithTimeout(context.Background(), s.ShutdownTimeout)
	defer stop()
	go func() {
		defer stop()
		if poll(ctx, func() bool { reading, writing := s.api.InFlight(); return reading+writing == 0 }) {
			_ = wait.Sleep(ctx, settings.LongRequestGrace)
		}
	}()
	if s.http.Shutdown(ctx) != nil {
		if reading, writing := s.api.InFlight(); reading+writing > 0 {
			s.log.Warn("requests did not finish before the server stopped", "reading", reading, "writing", writing, "waited",
				s.ShutdownTimeout)
		}
		_ = s.http.Close()
	}
	// HTTP/1 connections of WebSockets are not among those for which Shutdown waits.
	ended, stop := context.WithTimeout(context.Background(), settings.LongRequestGrace)
	defer stop()
	poll(ended, func() bool { return s.pipeline.OpenWatches() == 0 })
}

// poll waits until a condition holds. It returns false if ctx ends before.
func poll(ctx context.Context, holds func() bool) bool {
	for !holds() {
		if wait.Sleep(ctx, 5*time.Millisecond) != nil {
			return false
		}
	}
	return true
}
