// Package httpapi serves the API over HTTP: bytes become a Request of the pipeline, its Response becomes bytes. Here a
// client is authenticated (hop 2), a path becomes a resource and a verb, a query becomes options; answers are
// negotiated, encoded and sent, watches streamed, connections to Pods passed on, and discovery answered.
package httpapi

import (
	"cmp"
	"net/http"
	"runtime"
	"sync/atomic"

	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/internal/connlimit"
	"proa.dev/server"
	"proa.dev/server/clientsession"
	"proa.dev/server/encode"
	"proa.dev/server/fairqueue"
	"proa.dev/server/unreadbody"
	"proa.dev/server/watchdelivery"
)

// Authenticator is hop 2: it finds the user of an HTTP request.
type Authenticator interface {
	// Request returns the user of a request. An error is answered with 401.
	Request(r *http.Request) (user.Info, error)
}

// Config is what a Handler is made of.
type Config struct {
	Server *server.Server
	Authn  Authenticator
	// Observe is called for every finished request, for metrics; it may be nil.
	Observe func(Observation)
	// Watching is called for every watch that begins, for metrics. The functions that it returns are called with the
	// number of events that were sent, and when the watch ends. It may be nil.
	Watching func(Observation) (sent func(events int), ended func())
	// Paths serves what is not a resource: health, metrics, OpenAPI and the like. Discovery is served by the Handler.
	Paths http.Handler
	// Dashboard serves the static files under DashboardPath to everybody, also without credentials; nil when there are none.
	Dashboard http.Handler
	// Nodes connects to nodes and their Pods; nil when there are none.
	Nodes Nodes
	// Aggregated passes requests on to aggregated API servers; nil when there are none.
	Aggregated Aggregated
	// Address is the address of the server that discovery shows.
	Address string
	// NoCompression turns compression of answers off. NoWatchList refuses sendInitialEvents.
	NoCompression, NoWatchList bool
	// Memory bounds the memory of all requests together, in bytes; 0 for DefaultMemory.
	Memory int64
	// Connections bounds the streams of users to nodes, Pods and aggregated API servers; nil for no bound.
	Connections *connlimit.Budget
}

// Handler is the http.Handler of the API.
type Handler struct {
	Config
	memory memoryBudgets
	// processors shares processor time between users, except those who are exempt from priority and fairness.
	processors *fairqueue.Processors
	encodings  *encode.Cache
	deliveries watchdelivery.Limiter
	sessions   clientsession.Sessions
	unread     unreadbody.Reader

	reads, writes, streams atomic.Int64 // requests in flight
}

// New returns a handler.
func New(c Config) *Handler {
	c.Memory = cmp.Or(c.Memory, DefaultMemory)
	return &Handler{Config: c, memory: newMemoryBudgets(c.Memory), processors: fairqueue.NewProcessors(runtime.GOMAXPROCS(0)),
		encodings: encode.NewCache(int(c.Memory / 64))}
}
