package run

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"proa.dev/server/healthz"
)

// FailingPath is where administrators read which parts of the server do not work, and why. /readyz shows the names of
// failing checks to everybody, without the reasons.
const FailingPath = "/proa/failing"

// Failing is a part of the server's process, or a health check, that does not work now.
type Failing struct {
	Part  string    `json:"part"`
	Error string    `json:"error"`
	Since time.Time `json:"since,omitzero"`
}

const (
	// failingAfter is how long a controller must fail for an object until that is reported. Most errors end with the
	// first retry.
	failingAfter = 30 * time.Second
	// maxFailing bounds the answer, and maxFailingText each error in it.
	maxFailing, maxFailingText = 50, 1000
)

// Failing returns the parts that do not work: controllers and other parts that keep ending, controllers that keep
// failing for an object, and health checks.
func (s *Server) Failing(ctx context.Context, checks []healthz.Check) (out []Failing) {
	for _, c := range checks {
		if err := c.Probe(ctx); err != nil {
			out = append(out, Failing{Part: "check " + c.Name, Error: err.Error()})
		}
	}
	for _, f := range s.parts.Failed() {
		out = append(out, Failing{Part: f.Name, Error: f.Err.Error(), Since: f.Since})
	}
	for _, f := range s.queues.Failing(failingAfter) {
		out = append(out, Failing{Part: fmt.Sprintf("controller %s, about %s", f.Controller, f.Object), Error: f.Err.Error(),
			Since: f.Since})
	}
	out = out[:min(len(out), maxFailing)]
	for i := range out {
		if len(out[i].Error) > maxFailingText {
			out[i].Error = out[i].Error[:maxFailingText] + "..."
		}
	}
	return out
}

// serveFailing answers requests for FailingPath.
func (s *Server) serveFailing(checks []healthz.Check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		all := s.Failing(req.Context(), checks)
		if all == nil {
			all = []Failing{}
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_ = json.NewEncoder(w).Encode(all) // a client that has gone needs no answer
	})
}
