// Package run is process life: what a proa process is made of, in which order its parts start, and how they stop. Everything
// is put together here by plain calls; nothing registers itself.
package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/hop"
	"proa.dev/kinds"
	"proa.dev/kinds/codec"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/metrics"
	"proa.dev/node/simulate"
	"proa.dev/run/pki"
	"proa.dev/schedule"
	"proa.dev/server"
	"proa.dev/server/agents"
	"proa.dev/server/aggregate"
	"proa.dev/server/audit"
	"proa.dev/server/authz"
	"proa.dev/server/authz/bootstrap"
	"proa.dev/server/extension"
	"proa.dev/server/fair"
	"proa.dev/server/policyadmission"
	fields "proa.dev/server/schema"
	"proa.dev/server/usage"
	"proa.dev/server/webhook"
	"proa.dev/store"
	"proa.dev/store/encryption"
	"proa.dev/store/memory"
)

// Server is a running control plane.
type Server struct {
	Config
	log *slog.Logger

	pki    *pki.PKI
	store  Store
	state  *server.State
	front  *server.Server
	rbac   *server.RBACView
	defs   []*kind.Def
	audit  *audit.Log // nil for none
	queues *control.Metrics
	auth   identities
	// outside are the users that others know, and deciders decide what users may do.
	outside  outside
	deciders *deciders
	seal     *encryption.Sealed
	kms      *kmsPlugins
	// placing is how the scheduler works, and what it remembers.
	placing schedule.Config
	// policy is the RBAC policy every cluster begins with.
	policy *bootstrap.Policy
	// agents are the ways to nodes.
	agents *agents.Agents
	// extensions are the ways to webhooks, and webhooks counts calls of those of admission.
	extensions *extension.Clients
	webhooks   *webhook.Metrics
	// aggregator leads to aggregated API servers.
	aggregator *aggregate.Aggregator
	// life is that of views of objects that aggregated servers have, and endLife ends it.
	life    context.Context
	endLife context.CancelFunc
	// agentTrust is whom the server believes at the other end of these ways.
	agentTrust agentTrust
	health     health
	// ready says that the server has started, and stopping that it was asked to stop.
	ready, stopping atomic.Bool
	// parts knows which parts of the process do not work.
	parts PartHealth
	// trusted turns when the bundle of the cluster's authority does.
	trusted turn

	// listener is where clients come in, inner where Pods do: they cannot reach the machine's loopback.
	listener, inner net.Listener
	http            *http.Server
}

// Store is what a control plane needs of hop 7.
type Store interface {
	server.Store
	RunCompaction(ctx context.Context, every time.Duration)
	Healthy(ctx context.Context) error
	Room(ctx context.Context) error
	Size(ctx context.Context) (int64, error)
	Close() error
}

// Serve runs a control plane until ctx ends. onReady is called once, when it serves.
func Serve(ctx context.Context, c Config, log *slog.Logger, onReady func(*Server)) (err error) {
	s := &Server{Config: c, log: log}
	if s.Machine == nil && (s.Node.Name != "" || s.Nodes > 0) {
		return errors.New("this process runs no nodes; only a cluster that package machine is part of has some")
	}
	if err := s.open(ctx); err != nil {
		s.close()
		return err
	}
	defer s.close()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	for _, l := range []net.Listener{s.listener, s.inner} {
		if l == nil {
			continue
		}
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
	wg.Go(func() { s.rotate(ctx) })
	wg.Go(func() { s.reload(ctx) })
	if services, err := s.start(ctx); err != nil {
		stop(err)
	} else {
		wg.Go(func() {
			s.Persist(ctx, "apiservices", func() error { return s.followAPIServices(ctx, services) })
		})
		s.loops(ctx, &wg)
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
	s.aggregator.Close()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// prepare calls what a test wants to be done before it begins.
func (s *Server) prepare(ctx context.Context) error {
	for _, f := range s.Prepare {
		if err := f(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// open makes the parts that do not need each other to run: folder, keys, store, state, door, socket.
func (s *Server) open(ctx context.Context) error {
	if err := os.MkdirAll(s.DataDir, 0o700); err != nil {
		return fmt.Errorf("make the data folder: %w", err)
	}
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
	if err := s.openPKI(ctx); err != nil {
		return err
	}
	scheme, err := kinds.Scheme()
	if err != nil {
		return err
	}
	s.agents = s.openAgents()
	s.defs = append(s.kinds(), metrics.All(usage.New(s.agents, s.log))...)
	data, err := s.sealed(ctx)
	if err != nil {
		return err
	}
	s.state = server.NewState(context.WithoutCancel(ctx), codec.New(scheme), data, s.defs, s.log)
	s.state.Alone = len(s.EtcdServers) == 0
	s.extensions, s.webhooks = s.openExtensions(), webhook.NewMetrics()
	s.aggregator = s.openAggregator()
	s.life, s.endLife = context.WithCancel(context.WithoutCancel(ctx)) //nolint:gosec // close calls it
	if s.policy, err = bootstrap.Default(); err != nil {
		return err
	}
	if err := s.checkLoops(); err != nil {
		return err
	}
	s.policy.ClusterRoles, s.policy.ClusterRoleBindings = append(s.policy.ClusterRoles, roles(s.controllers())...), append(s.policy.ClusterRoleBindings, bindings(s.controllers())...)
	if s.feature(gangs) {
		roles, bindings := gangRoles()
		s.policy.ClusterRoles, s.policy.ClusterRoleBindings = append(s.policy.ClusterRoles, roles...), append(s.policy.ClusterRoleBindings, bindings...)
	}
	s.rbac = server.NewRBACView(s.state)
	rules := authz.NewRBAC(s.rbac)
	s.deciders = &deciders{node: authz.NewNode(server.NodeView{State: s.state}, nodeRules(s.policy)), rbac: rules}
	steps, err := s.readAuthorizers()
	if err != nil {
		return err
	}
	if err := s.deciders.set(steps); err != nil {
		return err
	}
	counts := s.metrics() //nolint:contextcheck // whoever reads the numbers brings no context
	auth, err := s.authenticator(counts.Certificate)
	if err != nil {
		return err
	}
	s.auth = auth
	s.queues = control.NewMetrics()
	counts.Registry().MustRegister(s.queues, s.agents, s.webhooks, s.aggregator, s.kms.latency, borrow())
	s.openIngress()
	s.openGateway()
	if s.Machine != nil {
		counts.Registry().MustRegister(s.Machine.Collectors()...)
	}
	if err := s.openScheduler(counts.Registry()); err != nil {
		return err
	}
	if err := s.openAudit(counts.Registry()); err != nil { //nolint:contextcheck // events are sent when their requests are over
		return err
	}
	if !s.feature(topology) {
		s.Admission.Disable = append(slices.Clone(s.Admission.Disable), "PodTopologyLabels")
	}
	policies := policyadmission.NewMetrics()
	counts.Registry().MustRegister(policies)
	mutating, checking, err := s.Admission.steps(s.nodeFacts, s.dynamicPlugins(policies))
	if err != nil {
		return err
	}
	if idle := s.idleFeatures(); len(idle) > 0 {
		s.log.WarnContext(ctx, "feature gates that switch nothing here", "gates", idle)
	}
	shared := fair.New(s.seats())
	counts.Registry().MustRegister(shared.Metrics())
	versions := server.NewVersions(scheme, s.defs)
	config := server.Config{
		State: s.state, Authn: auth, Authz: s.deciders, Log: s.log, Recorder: hop.NewRecorder(4096),
		Owner:   fields.New(scheme, versions, versions),
		Mutate:  mutating,
		Check:   append([]server.Plugin{server.RoleGuard(&authz.Guard{RBAC: rules, Authorizer: s.deciders})}, checking...),
		Address: s.advertise().String(), Paths: s.endpoints(auth, counts.Handler()),
		Observe:  func(o server.Observation) { counts.Done(counted(o)) },
		Watching: func(o server.Observation) (func(int), func()) { return counts.Watching(counted(o)) },
		Nodes:    s.agents, Aggregated: s.aggregator, SplitLogs: s.feature(splitLogs),
		Fair: shared, Plain: !s.feature(compressing), NoWatchList: !s.feature(watchingLists), Memory: s.requestMemory(),
	}
	if s.audit != nil {
		config.Audit = s.audit
	}
	s.front = server.New(config)
	s.http = s.newHTTPServer() //nolint:contextcheck // connections have the context of the HTTP server
	return nil
}

// seats are how many requests are served at a time.
func (s *Server) seats() int {
	if n := s.Reading + s.Writing; n > 0 {
		return n
	}
	return server.Seats
}

func (s *Server) openStore(ctx context.Context) (err error) {
	if s.Memory {
		s.store = memory.New(memory.Config{Hook: s.StoreHook})
		return nil
	}
	if len(s.EtcdServers) > 0 {
		s.store, err = opened(store.Dial(ctx, store.Config{Endpoints: s.EtcdServers, CAFile: s.EtcdCAFile, CertFile: s.EtcdCertFile, KeyFile: s.EtcdKeyFile, Log: s.log, Hook: s.StoreHook}))
		return err
	}
	s.store, err = opened(store.Embed(ctx, store.Config{Dir: filepath.Join(s.DataDir, "etcd"), Log: s.log, Hook: s.StoreHook}))
	return err
}

// opened keeps a nil *Etcd from becoming a Store that is not nil.
func opened(e *store.Etcd, err error) (Store, error) {
	if err != nil {
		return nil, err
	}
	return e, nil
}

// names are the addresses and names that the serving certificate must carry.
func (s *Server) names() pki.Options {
	o := pki.Options{Hosts: s.ExtraSANs, ListenIPs: []netip.Addr{s.advertise().Addr()}, Shared: len(s.EtcdServers) > 0}
	if s.inner != nil {
		o.ListenIPs = append(o.ListenIPs, s.Reachable().Addr())
	}
	if s.everywhere() {
		o.ListenIPs = append(o.ListenIPs, s.Reachable().Addr(), facing(s.advertise(), Config{}).Addr())
	}
	for _, p := range s.ServiceCIDRs {
		o.ServiceIPs = append(o.ServiceIPs, server.FirstIP(p))
	}
	return o
}

// advertise is the address at which clients on this machine reach the server.
func (s *Server) advertise() netip.AddrPort {
	if s.listener == nil {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 6443)
	}
	a := s.listener.Addr().(*net.TCPAddr).AddrPort()
	if a.Addr().IsUnspecified() {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), a.Port())
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// start makes what every cluster begins with, and reads which groups other servers serve.
func (s *Server) start(ctx context.Context) (services client.View, err error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	return s.openAPIServices(ctx)
}

// begin makes what every cluster begins with.
func (s *Server) begin(ctx context.Context) error {
	seed := server.Seed{ServiceCIDRs: s.ServiceCIDRs, Address: s.Reachable(), Policy: s.policy, Objects: s.registrations()}
	if err := s.state.FollowDefinitions(ctx, conversions(s.extensions)); err != nil {
		return fmt.Errorf("read the definitions of custom resources: %w", err)
	}
	c := s.front.Client(apiserver())
	if err := server.Plant(ctx, c, s.rbac, seed); err != nil {
		return fmt.Errorf("make the objects of a new cluster: %w", err)
	}
	// The loops begin as soon as this returns, and hop 3 must know their roles by then.
	if err := s.rbac.Wait(ctx); err != nil {
		return fmt.Errorf("read the roles: %w", err)
	}
	if err := withdrawReads(ctx, c, s.rbac); err != nil {
		return err
	}
	if err := s.publishSettings(ctx, c); err != nil {
		return fmt.Errorf("tell nodes the settings of the cluster: %w", err)
	}
	if err := simulate.Register(ctx, c, s.Simulate); err != nil {
		return err
	}
	return server.Point(ctx, c, seed)
}

// apiserver is the server's own identity.
func apiserver() user.Info {
	return &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}
}

// Reachable is the address the Service default/kubernetes leads to. Endpoints may not be loopback addresses, so a server
// that listens only there gives the first other address of the machine.
func (s *Server) Reachable() netip.AddrPort { return facing(s.advertise(), s.Config) }

// facing is where others reach what has an address on this machine: at its first address that is not there for the machine
// itself, such as those of other clusters' networks and name servers.
func facing(a netip.AddrPort, c Config) netip.AddrPort {
	switch {
	case !a.Addr().IsLoopback():
		return a
	case c.Alone:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 2}), a.Port()) // nowhere: an address for documents
	case len(c.Node.IPs) > 0:
		return netip.AddrPortFrom(c.Node.IPs[0], a.Port())
	}
	links, err := net.Interfaces()
	for _, l := range links {
		if err != nil || l.Flags&net.FlagLoopback != 0 || l.Flags&net.FlagUp == 0 || virtual(l.Name) {
			continue
		}
		addrs, err := l.Addrs()
		for _, x := range addrs {
			p, bad := netip.ParsePrefix(x.String())
			if ip := p.Addr(); err == nil && bad == nil && ip.Is4() && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
				return netip.AddrPortFrom(ip, a.Port())
			}
		}
	}
	if len(c.ServiceCIDRs) == 0 {
		return a
	}
	return netip.AddrPortFrom(server.FirstIP(c.ServiceCIDRs[0]), a.Port())
}

// virtual says that an interface belongs to containers, ours or those of others.
func virtual(name string) bool {
	for _, prefix := range []string{"proa", "pv", "veth", "docker", "cni", "flannel", "cali", "br-", "virbr"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return isLink(name)
}

// LinkPrefix begins the names of links, and of the cables that are plugged into them.
const LinkPrefix = "pn"

// isLink tells whether an interface is part of such a link.
func isLink(name string) bool {
	return strings.HasPrefix(name, LinkPrefix) && len(name) >= len(LinkPrefix)+8
}

func (s *Server) close() {
	if s.endLife != nil {
		s.endLife()
	}
	if s.extensions != nil {
		s.extensions.Close()
	}
	if s.agents != nil {
		s.agents.Close()
	}
	if s.kms != nil {
		s.kms.close()
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
	if s.inner != nil {
		_ = s.inner.Close()
	}
}

// Client is access to the cluster from inside the process.
func (s *Server) Client(who user.Info) client.Client { return s.front.Client(who) }

// Own is access as the server itself.
func (s *Server) Own() client.Client { return s.front.Client(apiserver()) }

// Account is access as an account of kube-system.
func (s *Server) Account(name string) client.Client { return s.front.Client(account(name)) }

// Log is where the process says what it does.
func (s *Server) Log() *slog.Logger { return s.log }

// Record keeps what another part of the process has spent on an object.
func (s *Server) Record(r hop.Record) { s.front.Recorder.Add(r) }

// Records are what is remembered of the writes to an object, oldest first.
func (s *Server) Records(uid types.UID) []hop.Record { return s.front.Recorder.Of(uid) }

// Kubeconfig is the path of the admin's kubeconfig.
func (s *Server) Kubeconfig() string { return filepath.Join(s.DataDir, "admin.kubeconfig") }

// URL is where the server is.
func (s *Server) URL() string { return "https://" + s.advertise().String() }
