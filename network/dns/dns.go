// Package dns is the DNS server of the cluster, which runs on every node. It implements the Kubernetes DNS
// specification (1.1.0): names of Services, their ports and endpoints, Pods, and reverse lookups. Answers come from the
// same views that the rules of Services are made from, so names are as up to date as traffic. Other names are forwarded
// to the servers of the node, or to those that are configured for a zone, and cached for a while.
//
// The server has the address of the kube-dns Service on the loopback interface of the node: queries of Pods never leave
// their node, and no Pod has to start first.
package dns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proa.dev/client"
	"proa.dev/internal/connlimit"
)

// Config configures a Server. The views are required.
type Config struct {
	// Domain is the cluster domain, "cluster.local" if empty.
	Domain string
	// Addresses are the addresses of the server: the cluster IPs of the kube-dns Service. They are added to the
	// loopback interface.
	Addresses []netip.Addr
	// Port is 53 if 0.
	Port uint16
	// CIDRs are the networks of Services and Pods: reverse lookups for them are not forwarded.
	CIDRs                        []netip.Prefix
	Services, Slices, Namespaces client.View
	// ResolvConf is the file with the upstream servers, "/etc/resolv.conf" if empty. It is read again when it changes.
	ResolvConf string
	// Stubs are the servers for single zones, as host or host:port.
	Stubs map[string][]string
	// TTL is the time to live of answers about the cluster, 5 seconds if 0.
	TTL time.Duration
	// Listening is called when the server accepts queries; may be nil.
	Listening func()
	// Connections bounds the TCP connections of clients; nil for no bound.
	Connections *connlimit.Budget
	Log         *slog.Logger
}

// Server is a DNS server.
type Server struct {
	Config
	zone    *zone
	forward *forwarder
	metrics metrics
}

// New returns a server; Serve starts it.
func New(c Config) (*Server, error) {
	if c.Services == nil || c.Slices == nil || c.Namespaces == nil {
		return nil, errors.New("cluster DNS: views of Services, EndpointSlices and Namespaces must be given")
	}
	if c.Domain == "" {
		c.Domain = "cluster.local"
	}
	if _, ok := dns.IsDomainName(c.Domain); !ok {
		return nil, fmt.Errorf("cluster DNS: %q is not the name of a domain", c.Domain)
	}
	if c.Port == 0 {
		c.Port = 53
	}
	if c.ResolvConf == "" {
		c.ResolvConf = "/etc/resolv.conf"
	}
	if c.TTL == 0 {
		c.TTL = 5 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{Config: c, metrics: newMetrics()}
	s.zone = &zone{
		origin: dns.CanonicalName(c.Domain), ttl: uint32(c.TTL.Seconds()), self: c.Addresses,
		services: c.Services, slices: c.Slices, namespaces: c.Namespaces,
	}
	var err error
	s.forward, err = newForwarder(c)
	return s, err
}

// Collectors returns the metrics of the server.
func (s *Server) Collectors() []prometheus.Collector { return s.metrics.collectors() }

// Serve answers queries until ctx ends.
func (s *Server) Serve(ctx context.Context) error {
	for _, a := range s.Addresses {
		if err := ownAddress(a); err != nil {
			return err
		}
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, a := range s.Addresses {
		addr := netip.AddrPortFrom(a, s.Port).String()
		packets, err := net.ListenPacket("udp", addr)
		if err != nil {
			return fmt.Errorf("answer names at %s: %w", addr, err)
		}
		defer packets.Close()
		streams, err := net.Listen("tcp", addr)
		if err != nil {
			return fmt.Errorf("answer names at %s: %w", addr, err)
		}
		defer streams.Close()
		// TCP connections keep file descriptors for a while; UDP packets do not.
		for _, server := range []*dns.Server{{PacketConn: packets, Net: "udp"},
			{Listener: s.Connections.Listener(streams, "dns", connlimit.Public), Net: "tcp", MaxTCPQueries: 1000}} {
			server.Handler = s.handler(ctx)
			server.ReadTimeout, server.WriteTimeout = 5*time.Second, 5*time.Second
			server.UDPSize = dns.MaxMsgSize
			wg.Go(func() {
				if err := server.ActivateAndServe(); err != nil && ctx.Err() == nil {
					cancel(fmt.Errorf("answer names at %s: %w", addr, err))
				}
			})
		}
	}
	if s.Listening != nil {
		s.Listening()
	}
	s.keepAddresses(ctx)
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// addressCheckPeriod is how often the server checks that its addresses are still on the node.
const addressCheckPeriod = 30 * time.Second

// keepAddresses keeps the addresses on the node until ctx ends.
func (s *Server) keepAddresses(ctx context.Context) {
	ticker := time.NewTicker(addressCheckPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, a := range s.Addresses {
			if err := ownAddress(a); err != nil {
				s.Log.Warn("Pods may not be able to query DNS", "err", err)
			}
		}
	}
}

// ownAddress adds an address to the loopback interface.
func ownAddress(a netip.Addr) error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.AddrReplace(lo, loopbackAddress(a))
	}
	if err != nil {
		return fmt.Errorf("give the node the address of the cluster's DNS, %s: %w", a, err)
	}
	return nil
}

func loopbackAddress(a netip.Addr) *netlink.Addr {
	out := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}}
	if a.Is6() {
		out.Flags = unix.IFA_F_NODAD
	} else {
		out.Scope = unix.RT_SCOPE_HOST // so that the node does not use it as a source address of its own connections
	}
	return out
}

// isAnswered reports whether a DNS server answers at an address: another cluster of this machine may use the same one.
func isAnswered(a netip.Addr) bool {
	c, err := net.ListenPacket("udp", netip.AddrPortFrom(a, 53).String())
	if err == nil {
		_ = c.Close()
	}
	return errors.Is(err, unix.EADDRINUSE)
}

// Purge removes those addresses from the node at which no server answers.
func Purge(addresses []netip.Addr) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find the loopback interface: %w", err)
	}
	for _, a := range addresses {
		if isAnswered(a) {
			continue
		}
		if err := netlink.AddrDel(lo, loopbackAddress(a)); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("remove the address %s: %w", a, err)
		}
	}
	return nil
}

// handler answers DNS messages.
func (s *Server) handler(ctx context.Context) dns.HandlerFunc {
	return func(w dns.ResponseWriter, r *dns.Msg) {
		start := time.Now()
		m, where := s.answer(ctx, r, addressOf(w.RemoteAddr()))
		shuffle(m.Answer)
		_, stream := w.RemoteAddr().(*net.TCPAddr)
		fit(r, m, stream)
		if err := w.WriteMsg(m); err != nil {
			s.Log.Debug("a query was not answered", "err", err)
		}
		s.metrics.observe(where, m.Rcode, time.Since(start))
	}
}

// addressOf returns the address of a client; the zero value if it is unknown.
func addressOf(a net.Addr) netip.Addr {
	at, _ := netip.ParseAddrPort(a.String())
	return at.Addr().Unmap()
}

// Answers tells whether the server has an address or an alias for the name of a Service.
func (s *Server) Answers(namespace, name string) bool {
	for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
		q := dns.Question{Name: name + "." + namespace + ".svc." + s.zone.origin, Qtype: kind, Qclass: dns.ClassINET}
		if a, ok := s.zone.answer(q); ok && len(a.answer) > 0 {
			return true
		}
	}
	return false
}

// fit truncates the answer to the size that the client accepts.
func fit(r, m *dns.Msg, stream bool) {
	size := dns.MinMsgSize
	if o := r.IsEdns0(); o != nil {
		size = int(min(max(o.UDPSize(), dns.MinMsgSize), 1232))
		if m.IsEdns0() == nil {
			m.SetEdns0(1232, o.Do())
		}
	}
	if stream {
		size = dns.MaxMsgSize
	}
	m.Compress = true
	m.Truncate(size)
}

// The sources of answers, for metrics.
const (
	fromCluster = "cluster"
	fromOutside = "outside"
	fromNowhere = "refused"
)

// answer returns the answer to a message of a client, and where it comes from.
func (s *Server) answer(ctx context.Context, r *dns.Msg, asker netip.Addr) (m *dns.Msg, where string) {
	m = new(dns.Msg)
	m.SetReply(r)
	m.RecursionAvailable = true
	if r.Opcode != dns.OpcodeQuery || len(r.Question) != 1 {
		m.Rcode = dns.RcodeNotImplemented
		return m, fromNowhere
	}
	if o := r.IsEdns0(); o != nil && o.Version() != 0 {
		m.Rcode = dns.RcodeBadVers
		return m, fromNowhere
	}
	q := r.Question[0]
	if q.Qclass != dns.ClassINET || q.Qtype == dns.TypeAXFR || q.Qtype == dns.TypeIXFR || q.Qtype == dns.TypeANY {
		m.Rcode = dns.RcodeRefused
		return m, fromNowhere
	}
	if a, ok := s.zone.answer(q); ok {
		m.Authoritative = true
		m.Rcode, m.Answer, m.Extra, m.Ns = a.rcode, a.answer, a.extra, a.authority
		s.chase(ctx, m, q, asker)
		return m, fromCluster
	}
	if ip, ok := reverse(q.Name); ok && s.inside(ip) {
		m.Rcode, m.Ns = dns.RcodeNameError, []dns.RR{s.zone.reverseSOA(ip)}
		return m, fromCluster
	}
	from, err := s.forward.resolve(ctx, r, asker)
	if err != nil {
		s.Log.Debug("a name outside the cluster could not be resolved", "name", q.Name, "err", err)
		m.Rcode = dns.RcodeServerFailure
		return m, fromOutside
	}
	from.Id, from.Question, from.RecursionDesired = r.Id, r.Question, r.RecursionDesired
	from.RecursionAvailable, from.Response = true, true
	return from, fromOutside
}

func (s *Server) inside(ip netip.Addr) bool {
	for _, p := range s.CIDRs {
		if p.Contains(ip) {
			return true
		}
	}
	return false
}

// chase adds the records that an alias of the cluster leads to, so that the client need not ask again. Aliases in a
// loop are cut off.
func (s *Server) chase(ctx context.Context, m *dns.Msg, q dns.Question, asker netip.Addr) {
	if q.Qtype != dns.TypeA && q.Qtype != dns.TypeAAAA {
		return
	}
	seen := map[string]bool{dns.CanonicalName(q.Name): true}
	for len(m.Answer) > 0 {
		alias, ok := m.Answer[len(m.Answer)-1].(*dns.CNAME)
		if !ok || seen[dns.CanonicalName(alias.Target)] {
			return
		}
		seen[dns.CanonicalName(alias.Target)] = true
		next := dns.Question{Name: alias.Target, Qtype: q.Qtype, Qclass: q.Qclass}
		a, ok := s.zone.answer(next)
		if !ok {
			s.chaseOutside(ctx, m, next, asker)
			return
		}
		if m.Answer = append(m.Answer, a.answer...); len(a.answer) == 0 {
			m.Rcode, m.Ns = a.rcode, a.authority
			return
		}
	}
}

func (s *Server) chaseOutside(ctx context.Context, m *dns.Msg, q dns.Question, asker netip.Addr) {
	m.Authoritative = false
	ask := new(dns.Msg)
	ask.SetQuestion(q.Name, q.Qtype)
	from, err := s.forward.resolve(ctx, ask, asker)
	if err != nil {
		m.Rcode = dns.RcodeServerFailure
		return
	}
	m.Answer, m.Rcode = append(m.Answer, from.Answer...), from.Rcode
}

// shuffle changes the order of addresses, because many clients use the first.
func shuffle(list []dns.RR) {
	begin := 0
	for begin < len(list) && list[begin].Header().Rrtype == dns.TypeCNAME {
		begin++
	}
	rest := list[begin:]
	rand.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
}

// reverse parses the address of a reverse lookup.
func reverse(name string) (netip.Addr, bool) {
	name = strings.ToLower(name)
	if rest, ok := strings.CutSuffix(name, ".in-addr.arpa."); ok {
		parts := strings.Split(rest, ".")
		if len(parts) != 4 {
			return netip.Addr{}, false
		}
		a, err := netip.ParseAddr(parts[3] + "." + parts[2] + "." + parts[1] + "." + parts[0])
		return a, err == nil
	}
	rest, ok := strings.CutSuffix(name, ".ip6.arpa.")
	if !ok || len(rest) != 63 {
		return netip.Addr{}, false
	}
	var text strings.Builder
	for i := 62; i >= 0; i -= 2 {
		text.WriteByte(rest[i])
		if n := text.Len(); n%5 == 4 && i > 0 {
			text.WriteByte(':')
		}
		if i > 0 && rest[i-1] != '.' {
			return netip.Addr{}, false
		}
	}
	a, err := netip.ParseAddr(text.String())
	return a, err == nil
}
