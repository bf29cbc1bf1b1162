// Package run puts a proa server together from its parts, starts them in order and stops them in reverse. Everything is wired
// here by direct calls; nothing registers itself.
package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/hop"
	"proa.dev/internal/connlimit"
	"proa.dev/kinds"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/kinds/metrics"
	"proa.dev/node/simulate"
	"proa.dev/run/access"
	"proa.dev/run/bootstraproles"
	"proa.dev/run/goprocess"
	"proa.dev/run/parthealth"
	"proa.dev/run/pki"
	"proa.dev/run/settings"
	"proa.dev/run/storeencryption"
	"proa.dev/run/webhookclient"
	"proa.dev/schedule"
	"proa.dev/server"
	"proa.dev/server/aggregation"
	"proa.dev/server/apiendpoints"
	"proa.dev/server/audit"
	"proa.dev/server/authz"
	"proa.dev/server/authz/bootstrappolicy"
	"proa.dev/server/coreadmission"
	"proa.dev/server/extensionclient"
	"proa.dev/server/fairqueue"
	"proa.dev/server/httpapi"
	"proa.dev/server/initialobjects"
	"proa.dev/server/localclient"
	"proa.dev/server/nodeconnection"
	"proa.dev/server/peerrecords"
	"proa.dev/server/policyadmission"
	"proa.dev/server/resourcemetrics"
	fields "proa.dev/server/schema"
	"proa.dev/server/state"
	"proa.dev/server/webhook"
	"proa.dev/store"
	"proa.dev/store/memory"
	"proa.dev/trace/otlp"
	"proa.dev/ui"
)

// Server is a running control plane.
type Server struct {
	Config
	log *slog.Logger

	// What is stored, and how it is encrypted.
	pki        *pki.PKI
	store      Store
	encryption *storeencryption.Encryption
	state      *state.State
	builtIn    []*kind.Def

	// The request pipeline: who users are, what they may do, and what is recorded of their requests.
	pipeline    *server.Server
	api         *httpapi.Handler
	auth        access.Authenticator
	users       *access.ExternalUsers
	authorizers *access.Authorizers
	rbac        *state.RBACView
	policy      *bootstrappolicy.Policy // the RBAC policy that every cluster begins with
	audit       *audit.Log              // nil if there is no audit log
	exporter    *otlp.Exporter          // nil if spans are not exported

	// Connections to node agents, webhooks and aggregated API servers.
	agents     *nodeconnection.Agents
	agentTrust agentTrust
	extensions *extensionclient.Clients
	webhooks   *webhook.Metrics // counts calls of admission webhooks
	aggregator *aggregation.Aggregator
	peers      *peerrecords.Peers // nil if no other server uses the store
	// apiEndpoints keeps the endpoints of the Service default/kubernetes.
	apiEndpoints *apiendpoints.Keeper
	// viewContext ends the views of objects of aggregated servers when endViews is called.
	viewContext context.Context
	endViews    context.CancelFunc

	// Controllers and the scheduler.
	queues     *control.Metrics
	scheduling schedule.Config
	schedules  atomic.Bool // the scheduler runs in this process

	// Health. ready is set when the server has started, stopping when it was asked to stop.
	health          parthealth.CheckResults
	parts           parthealth.Tracker
	ready, stopping atomic.Bool
	// trustChanged is notified when the bundle of certificate authorities changes.
	trustChanged notifier

	// connections counts the connections of all listeners of the process.
	connections *connlimit.Budget
	// listener serves clients. podListener serves Pods if listener listens only on loopback, which they cannot reach.
	listener, podListener net.Listener
	http                  *http.Server
}

// Store is the part of package store, or of its replacement in tests, that a control plane needs.
type Store interface {
	state.Store
	RunCompaction(ctx context.Context, every time.Duration)
	Healthy(ctx context.Context) error
	Room(ctx context.Context) error
	Size(ctx context.Context) (int64, error)
	Close() error
}

// Serve runs a control plane until ctx ends. It calls onReady once, when requests are served and controllers run.
func Serve(ctx context.Context, c Config, log *slog.Logger, onReady func(*Server)) (err error) {
	s := &Server{Config: c, log: log}
	if s.Machine == nil && (s.Node.Name != "" || s.Nodes > 0) {
		return errors.New("this process cannot run nodes, because it was built without package machine; leave out node and nodes")
	}
	if err := s.open(ctx); err != nil {
		s.close()
		return err
	}
	defer s.close()
	records := s.recordKeeper()
	records.Restore()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	for _, l := range []net.Listener{s.listener, s.podListener} {
		if l == nil {
			continue
		}
		l = s.connections.Listener(l, "api", connlimit.Unauthenticated)
		wg.Go(func() {
			if err := s.http.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
				stop(fmt.Errorf("serve: %w", err))
			}
		})
	}
	wg.Go(func() { s.store.RunCompaction(ctx, c.CompactionInterval) })
	if len(s.EtcdServers) > 0 {
		wg.Go(func() { s.watchHealth(ctx) })
	}
	wg.Go(func() { records.Run(ctx) })
	wg.Go(func() { s.rotate(ctx) })
	wg.Go(func() { s.reload(ctx) })
	if services, err := s.start(ctx); err != nil {
		stop(err)
	} else {
		wg.Go(func() {
			s.Persist(ctx, "apiservices", func() error { return s.followAPIServices(ctx, services) })
		})
		wg.Go(func() { s.exporter.Run(ctx) })
		wg.Go(func() { s.peers.Announce(ctx) })
		wg.Go(func() { s.apiEndpoints.Run(ctx) })
		s.startControllers(ctx, &wg)
		if s.Machine != nil {
			s.Machine.Start(ctx, &wg)
		}
		s.ready.Store(true)
		if err := s.prepare(ctx); err != nil {
			stop(err)
		} else if onReady != nil {
			onReady(s)
		}
	}
	<-ctx.Done()
	s.stopping.Store(true)
	s.shutdown() //nolint:contextcheck // the time to stop begins when the context has ended
	wg.Wait()
	records.Save() // what was recorded while the parts stopped
	s.aggregator.Close()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// prepare calls the hooks of a test that run before the server counts as ready.
func (s *Server) prepare(ctx context.Context) error {
	for _, f := range s.Prepare {
		if err := f(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// open creates the parts in the order of their dependencies: data folder, listeners, store, keys, state, authorization,
// metrics, admission and the pipeline. Nothing runs yet.
func (s *Server) open(ctx context.Context) error {
	if err := os.MkdirAll(s.DataDir, 0o700); err != nil {
		return fmt.Errorf("create the data folder: %w", err)
	}
	s.connections = s.openConnections()
	if s.Machine != nil {
		if err := s.Machine.Open(s); err != nil {
			return err
		}
	}
	if err := s.listen(); err != nil {
		return err
	}
	if err := s.openStore(ctx); err != nil {
		return err
	}
	empty, err := s.openKeys(ctx)
	if err != nil {
		return err
	}
	scheme, err := kinds.Scheme()
	if err != nil {
		return err
	}
	s.agents, s.peers = s.openAgents(), s.openPeers()
	s.builtIn = slices.Concat(s.kinds(), metrics.All(resourcemetrics.New(s.agents, s.log)), s.tracingKinds())
	if err := s.openEncryption(ctx, empty); err != nil {
		return err
	}
	s.state = state.New(context.WithoutCancel(ctx), codec.New(scheme), s.encryption.EncryptedStore(), s.builtIn, s.log)
	s.state.SoleWriter = len(s.EtcdServers) == 0
	s.extensions, s.webhooks = s.openExtensions(), webhook.NewMetrics()
	s.aggregator = s.openAggregator()
	s.viewContext, s.endViews = context.WithCancel(context.WithoutCancel(ctx))
	if s.policy, err = bootstrappolicy.Default(); err != nil {
		return err
	}
	if err := s.checkControllers(); err != nil {
		return err
	}
	s.addRoles()
	s.rbac = state.NewRBACView(s.state)
	rules := authz.NewRBAC(s.rbac)
	s.authorizers = access.NewAuthorizers(authz.NewNode(state.NodeView{State: s.state}, nodeRules(s.policy)), rules)
	steps, err := s.ReadAuthorizers()
	if err != nil {
		return err
	}
	if err := s.authorizers.Set(steps); err != nil {
		return err
	}
	counts := s.metrics() //nolint:contextcheck // metrics are collected without a context
	auth, err := s.openAuthenticator(counts.Certificate)
	if err != nil {
		return err
	}
	s.auth = auth
	s.queues = control.NewMetrics()
	s.queues.Recorder = s.openRecorder(counts)
	counts.Registry().MustRegister(s.queues, s.agents, s.webhooks, s.aggregator, goprocess.UpstreamMetrics(), s.connections.Collector())
	counts.Registry().MustRegister(s.encryption.Collectors()...)
	if err := s.openScheduler(counts.Registry()); err != nil {
		return err
	}
	if err := s.openAudit(counts.Registry()); err != nil { //nolint:contextcheck // events are sent when their requests are over
		return err
	}
	if !s.FeatureEnabled(settings.PodTopologyLabels) {
		s.Admission.Disable = append(slices.Clone(s.Admission.Disable), "PodTopologyLabels")
	}
	policies := policyadmission.NewMetrics()
	counts.Registry().MustRegister(policies)
	mutating, checking, err := s.Admission.Enabled(s.nodeFacts, s.dynamicPlugins(policies))
	if err != nil {
		return err
	}
	if idle := s.FeaturesWithoutEffect(); len(idle) > 0 {
		s.log.WarnContext(ctx, "feature gates without effect in this server", "gates", idle)
	}
	shared := fairqueue.New(s.seats())
	counts.Registry().MustRegister(shared.Metrics())
	versions := state.NewVersions(scheme, s.builtIn)
	config := server.Config{
		State: s.state, Authn: auth, Authz: s.authorizers, Log: s.log, Recorder: s.queues.Recorder,
		Owner:     fields.New(scheme, versions, versions),
		Mutate:    mutating,
		Check:     append([]server.Plugin{coreadmission.RoleGuard(&authz.Guard{RBAC: rules, Authorizer: s.authorizers})}, checking...),
		SplitLogs: s.FeatureEnabled(settings.SplitLogStreams), Fair: shared, NamespaceBytes: s.namespaceBytes(),
	}
	if s.audit != nil {
		config.Audit = s.audit
	}
	s.pipeline = server.New(config)
	if err := s.openExporter(counts.Registry()); err != nil {
		return err
	}
	dashboard, err := ui.New(ui.Server)
	if err != nil {
		return err
	}
	s.api = httpapi.New(httpapi.Config{
		Server: s.pipeline, Authn: auth, Address: s.localAddress().String(), Paths: s.endpoints(auth, counts.Handler()),
		Dashboard: dashboard,
		Observe:   func(o httpapi.Observation) { counts.Done(requestMetrics(o)) },
		Watching:  func(o httpapi.Observation) (func(int), func()) { return counts.Watching(requestMetrics(o)) },
		Nodes:     s.agents, Aggregated: s.aggregator,
		NoCompression: !s.FeatureEnabled(settings.ResponseCompression), NoWatchList: !s.FeatureEnabled(settings.WatchList),
		Memory: s.requestMemory(), Connections: s.connections,
	})
	s.http = s.newHTTPServer() //nolint:contextcheck // connections have the context of the HTTP server
	return nil
}

// addRoles adds the roles of controllers, and of what else runs in the process, to the policy that every cluster begins with.
func (s *Server) addRoles() {
	add := func(roles []*rbacv1.ClusterRole, bindings []*rbacv1.ClusterRoleBinding) {
		s.policy.ClusterRoles = append(s.policy.ClusterRoles, roles...)
		s.policy.ClusterRoleBindings = append(s.policy.ClusterRoleBindings, bindings...)
	}
	s.policy.Withdraw = bootstraproles.Withdrawn()
	controllers := s.controllers()
	add(bootstraproles.ControllerRoles(controllers), bootstraproles.ControllerBindings(controllers))
	add(bootstraproles.TraceRoles())
	if s.FeatureEnabled(settings.GangScheduling) {
		add(bootstraproles.GangRoles())
	}
	if s.ServesIngresses() {
		add(bootstraproles.IngressRoles())
	}
	if s.ServesGateways() {
		add(bootstraproles.GatewayRoles())
	}
}

// seats returns how many requests are served at a time.
func (s *Server) seats() int {
	if n := s.Reading + s.Writing; n > 0 {
		return n
	}
	return server.Seats
}

// openStore opens the embedded store, connects to an external etcd, or keeps objects in memory for a test.
func (s *Server) openStore(ctx context.Context) (err error) {
	if s.InMemory {
		s.store = memory.New(memory.Config{Hook: s.StoreHook})
		return nil
	}
	var e *store.Etcd
	if dir := filepath.Join(s.DataDir, "etcd"); len(s.EtcdServers) > 0 {
		e, err = store.Dial(ctx, store.Config{Endpoints: s.EtcdServers, CAFile: s.EtcdCAFile, CertFile: s.EtcdCertFile,
			KeyFile: s.EtcdKeyFile, Log: s.log, Hook: s.StoreHook})
	} else if err = storeencryption.CheckStoreNotLost(dir, s.DataDir); err == nil {
		e, err = store.Embed(ctx, store.Config{Dir: dir, Log: s.log, Hook: s.StoreHook})
	}
	if err == nil {
		s.store = e // not before: a nil *Etcd would become a Store that is not nil
	}
	return err
}

// start creates the initial objects, and reads which API groups other servers serve.
func (s *Server) start(ctx context.Context) (services client.View, err error) {
	if err := s.createInitialObjects(ctx); err != nil {
		return nil, err
	}
	return s.openAPIServices(ctx)
}

// createInitialObjects creates the objects that every cluster begins with, and brings the roles up to date.
func (s *Server) createInitialObjects(ctx context.Context) error {
	seed := initialobjects.Settings{ServiceCIDRs: s.ServiceCIDRs, Policy: s.policy, Objects: s.initialObjects()}
	if err := s.state.FollowDefinitions(ctx, webhookclient.Conversions(s.extensions)); err != nil {
		return fmt.Errorf("read the definitions of custom resources: %w", err)
	}
	c := localclient.New(s.pipeline, apiserver())
	if err := initialobjects.Create(ctx, c, s.rbac, seed); err != nil {
		return fmt.Errorf("create the initial objects of the cluster: %w", err)
	}
	// The controllers start as soon as this returns, and hop 3 must know their roles by then.
	if err := s.rbac.Wait(ctx); err != nil {
		return fmt.Errorf("read the roles: %w", err)
	}
	if err := s.publishSettings(ctx, c); err != nil {
		return fmt.Errorf("publish the settings of the cluster for nodes: %w", err)
	}
	if err := simulate.Register(ctx, c, s.Simulate); err != nil {
		return err
	}
	return s.listServer(ctx, c)
}

// listServer adds this server to those to which the Service default/kubernetes leads.
func (s *Server) listServer(ctx context.Context, c client.Client) error {
	s.apiEndpoints = &apiendpoints.Keeper{Client: c, Address: s.Reachable, ClusterIP: apiendpoints.FirstIP(s.ServiceCIDRs[0]), Log: s.log}
	if len(s.EtcdServers) == 0 {
		return s.apiEndpoints.Sync(ctx)
	}
	s.apiEndpoints.Leases = s.store
	if err := s.apiEndpoints.Sync(ctx); err != nil { // other servers are no reason to end; Run tries again
		s.log.WarnContext(ctx, "default/kubernetes does not lead to this server yet; retrying", "err", err)
	}
	return nil
}

// apiserver returns the identity under which the server itself writes.
func apiserver() user.Info {
	return &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}
}

func (s *Server) close() {
	if s.endViews != nil {
		s.endViews()
	}
	if s.extensions != nil {
		s.extensions.Close()
	}
	if s.agents != nil {
		s.agents.Close()
	}
	if s.encryption != nil {
		s.encryption.Close()
	}
	if s.state != nil {
		s.state.Close()
	}
	if s.store != nil {
		if err := s.store.Close(); err != nil {
			s.log.Error("close the store", "err", err)
		}
	}
	if s.audit != nil {
		if err := s.audit.Close(); err != nil {
			s.log.Error("close the audit log", "err", err)
		}
	}
	if s.listener != nil {
		_ = s.listener.Close() // already closed by the HTTP server when that ran
	}
	if s.podListener != nil {
		_ = s.podListener.Close()
	}
}

// Client returns a client with the identity of a user, for callers in this process.
func (s *Server) Client(who user.Info) client.Client { return localclient.New(s.pipeline, who) }

// OwnClient returns a client with the identity of the server itself.
func (s *Server) OwnClient() client.Client { return localclient.New(s.pipeline, apiserver()) }

// Log returns the logger of the process.
func (s *Server) Log() *slog.Logger { return s.log }

// RecordHops stores the record of another part of the process, in place of the open record of the same work if there is one.
func (s *Server) RecordHops(r hop.Record) { s.pipeline.Recorder.Update(r) }

// HopsOf returns the hop times of the writes to an object, oldest first.
func (s *Server) HopsOf(uid types.UID) []hop.Record { return s.pipeline.Recorder.Of(uid) }

// Kubeconfig returns the path of the administrator's kubeconfig.
func (s *Server) Kubeconfig() string { return filepath.Join(s.DataDir, "admin.kubeconfig") }

// URL returns the URL of the API server for clients on this machine.
func (s *Server) URL() string { return "https://" + s.localAddress().String() }
