package httpapi

import (
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Observation describes a request to metrics.
type Observation struct {
	Verb, Group, Version, Resource, Sub string
	Scope                               string // resource, namespace, cluster; empty when it is not for a resource
	DryRun                              bool
	Code                                int
	Bytes                               int64
	Took                                time.Duration
	Terminated                          bool // the server has refused it to protect itself
}

// observation describes a request with a bounded set of values: resources that are not served have no name, or any
// client could make the metrics grow.
func (s *Handler) observation(req *http.Request, rt route) Observation {
	o := Observation{Verb: rt.verb}
	def := s.Server.State.Served(rt.gvr)
	if def != nil {
		o.Group, o.Version, o.Resource = rt.gvr.Group, rt.gvr.Version, rt.gvr.Resource
		if def.Sub(rt.sub) != nil {
			o.Sub = rt.sub
		}
	}
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
	default:
		o.Verb = "other"
	}
	switch {
	case def == nil:
	case rt.name != "":
		o.Scope = "resource"
	case rt.namespace != "":
		o.Scope = "namespace"
	default:
		o.Scope = "cluster"
	}
	if o.Verb == "patch" && strings.HasPrefix(req.Header.Get("Content-Type"), string(types.ApplyYAMLPatchType)) {
		o.Verb = "apply"
	}
	o.DryRun = strings.Contains(req.URL.RawQuery, "dryRun=")
	return o
}

// inFlightCounter returns the counter of requests in flight that a request belongs to: reads, writes or streams.
func (s *Handler) inFlightCounter(rt *route) *atomic.Int64 {
	switch {
	case rt.verb == "watch" || isLongRunning(rt.sub):
		return &s.streams
	case rt.verb == "get" || rt.verb == "list":
		return &s.reads
	}
	return &s.writes
}

// InFlight returns how many reads and writes are in flight, without long-running requests.
func (s *Handler) InFlight() (reading, writing int64) { return s.reads.Load(), s.writes.Load() }
