package server

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/server/authz"
	"proa.dev/server/collection"
	"proa.dev/server/computed"
	"proa.dev/server/fairqueue"
	"proa.dev/server/fieldmanager"
	"proa.dev/server/keylock"
	"proa.dev/server/requestflow"
	"proa.dev/server/schema"
	"proa.dev/server/state"
)

// Authenticator reviews and issues tokens for the kinds that offer this: TokenReview and TokenRequest.
type Authenticator interface {
	// Review checks a token for the given audiences.
	Review(ctx context.Context, spec authenticationv1.TokenReviewSpec) authenticationv1.TokenReviewStatus
	// Issue signs a token for a service account and completes the request's status.
	Issue(ctx context.Context, account *corev1.ServiceAccount, request *authenticationv1.TokenRequest) error
}

// Authorizer decides in hop 3 what a user may do, and lists it.
type Authorizer interface {
	authz.Authorizer
	RulesReviewer
}

// Config is what a Server is made of.
type Config struct {
	State    *state.State
	Authn    Authenticator
	Authz    Authorizer
	Owner    *schema.Owner
	Recorder *hop.Recorder
	Log      *slog.Logger
	// Mutate and Check are the built-in admission plugins of hops 4 and 6, in order.
	Mutate, Check []Plugin
	// Audit opens an audit record for each request; nil for no records.
	Audit Auditor
	// SplitLogs lets clients choose between stdout and stderr of a container's log.
	SplitLogs bool
	// Fair shares the seats between users; nil for one with Seats seats.
	Fair *fairqueue.Dispatcher
	// NamespaceBytes bounds what the objects of one namespace may have in the store; 0 for no bound. See namespacebytes.go.
	NamespaceBytes int64
	// Watches is how many watches of clients may be open at the same time; 0 for 50,000.
	Watches int
}

// Plugin is an admission plugin.
type Plugin = kind.Plugin

// Admission is a write as an admission plugin sees it.
type Admission = kind.Admission

// Server is the request pipeline.
type Server struct {
	Config
	queue       *requestflow.Queue
	quotaLocks  keylock.Locks // by namespace; see commit
	watches     atomic.Int64  // of HTTP clients, open now
	collections *collection.Reader
	fields      *fieldmanager.Fields
	computed    computed.Reader

	// watching is the context of all watches of HTTP clients, and endWatches ends it.
	watching   context.Context
	endWatches context.CancelFunc
}

// Seats is how many requests are served at the same time when nothing else is configured.
const Seats = 600

// New makes a pipeline over a State.
func New(c Config) *Server {
	if c.Fair == nil {
		c.Fair = fairqueue.New(Seats)
	}
	c.Watches = cmp.Or(c.Watches, 50000)
	if c.Authz != nil {
		c.Authz = retryingAuthorizer{c.Authz, authz.Retrying{Authorizer: c.Authz, Wait: state.NewRBACView(c.State).Wait}}
	}
	s := &Server{Config: c, queue: requestflow.New(c.State, c.Fair), collections: collection.NewReader(c.State),
		fields: &fieldmanager.Fields{Owner: c.Owner, State: c.State, Log: c.Log}}
	s.watching, s.endWatches = context.WithCancel(c.State.Context())
	return s
}

// EndWatches ends all watches of HTTP clients, and those that begin later, when the server shuts down. The streams end
// without an error event, so that clients resume after the last event that they got. It returns at once; OpenWatches
// tells how many watches are still open.
func (s *Server) EndWatches() { s.endWatches() }

// OpenWatches returns how many watches of HTTP clients are open.
func (s *Server) OpenWatches() int64 { return s.watches.Load() }
