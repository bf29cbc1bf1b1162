package server

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/server/authz"
	"proa.dev/server/fair"
	"proa.dev/server/schema"
)

// Authenticator is hop 2 as the server needs it.
type Authenticator interface {
	// Request says who asks. An error is a refusal: 401.
	Request(r *http.Request) (user.Info, error)
	// Review checks a token for the given audiences.
	Review(ctx context.Context, spec authenticationv1.TokenReviewSpec) authenticationv1.TokenReviewStatus
	// Issue signs a token for a service account and completes the request's status.
	Issue(ctx context.Context, account *corev1.ServiceAccount, request *authenticationv1.TokenRequest) error
}

// Authorizer is hop 3 as the server needs it.
type Authorizer interface {
	authz.Authorizer
	Rules
}

// Config is what a server is made of.
type Config struct {
	State    *State
	Authn    Authenticator
	Authz    Authorizer
	Owner    *schema.Owner
	Recorder *hop.Recorder
	Log      *slog.Logger
	// Mutate and Check are the built-in admission plugins of hops 4 and 6, in order.
	Mutate, Check []Plugin
	// Audit records requests; nil for no records.
	Audit Auditor
	// Observe is told about every finished HTTP request; nil for nobody.
	Observe func(Observation)
	// Watching is told about every watch that begins; what it returns is called with the number of events that were sent,
	// and when the watch ends. Nil for nobody.
	Watching func(Observation) (sent func(events int), ended func())
	// Paths serves what is not a resource: health, metrics, OpenAPI and the like. Discovery is the server's own.
	Paths http.Handler
	// Nodes leads to nodes and their Pods; nil when there is no way.
	Nodes Nodes
	// Aggregated leads to the servers that serve some groups in place of this one; nil when there are none.
	Aggregated Aggregated
	// SplitLogs lets clients choose one stream of a log.
	SplitLogs bool
	// Address is where clients reach the server, for discovery.
	Address string
	// Fair shares the server out between its users; nil for the usual.
	Fair *fair.Sharing
	// Plain compresses no answers. NoWatchList begins no watch with the present state, but for those of old.
	Plain, NoWatchList bool
	// Watches bounds the open watches of clients.
	Watches int
	// Memory bounds the bytes that requests of HTTP hold together; 0 for DefaultMemory.
	Memory int64
}

// Plugin is an admission step.
type Plugin = kind.Plugin

// Admission is what an admission step sees.
type Admission = kind.Admission

// Server is the front door.
type Server struct {
	Config
	queue   *queue
	turns   turns
	memory  memory
	watches atomic.Int64  // open now
	pasts   chan struct{} // a place for each of those that read the past
	// processors are shared out between the users who are not exempt from that.
	processors *fair.Processors
	encodings  *encodings

	// watching is the context of all watches of HTTP clients, and endWatches ends it.
	watching   context.Context
	endWatches context.CancelFunc

	reading, writing, lasting atomic.Int64 // requests that are being served
}

// Seats is how many requests are served at the same time, unless somebody says otherwise.
const Seats = 600

// boundPatches bounds what the copy operations of one JSON patch may add to a document. The library keeps that bound in a
// variable of its own.
var boundPatches = sync.OnceFunc(func() { jsonpatch.AccumulatedCopySizeLimit = maxBody })

// New makes a server.
func New(c Config) *Server {
	if c.Fair == nil {
		c.Fair = fair.New(Seats)
	}
	c.Watches = cmp.Or(c.Watches, 50000)
	c.Memory = cmp.Or(c.Memory, DefaultMemory)
	if c.Authz != nil {
		c.Authz = patient{c.Authz, NewRBACView(c.State)}
	}
	boundPatches()
	s := &Server{Config: c, queue: newQueue(c.State, c.Fair), memory: newMemory(c.Memory), pasts: make(chan struct{}, pastReaders),
		processors: fair.NewProcessors(runtime.GOMAXPROCS(0)), encodings: newEncodings(int(c.Memory / 64))}
	s.watching, s.endWatches = context.WithCancel(c.State.ctx)
	return s
}
