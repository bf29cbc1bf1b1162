// Package dns answers the names of the cluster on every node, as the DNS specification of Kubernetes (1.1.0) says: Services,
// their ports and endpoints, Pods, and the way back from addresses to names. Answers come from the same views that the rules
// of Services are made from, so a name is as new as the traffic. Other names are asked of the node's own servers, or of those
// that are configured for a zone, and kept for a while.
//
// The server has the address of the kube-dns Service on the node's loopback interface: what Pods send there never leaves their
// node, and there is no Pod to wait for.
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
	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"

	"proa.dev/client"
)

// Config says what is answered, and from what. The views must be given.
type Config struct {
	// Domain is the cluster's, "cluster.local" if empty.
	Domain string
	// Addresses are those that the server has: the cluster IPs of the kube-dns Service. They are put on the loopback interface.
	Addresses []netip.Addr
	// Port is 53 if 0.
	Port uint16
	// CIDRs are the networks of Services and Pods: nobody outside knows names for them.
	CIDRs []netip.Prefix
	// Services, Slices and Namespaces are what is read.
	Services, Slices, Namespaces client.View
	// ResolvConf names the file with the servers for other names, "/etc/resolv.conf" if empty. It is read again when it changes.
	ResolvConf string
	// Stubs are the servers for zones of their own, as host or host:port.
	Stubs map[string][]string
	// TTL is how long others may keep an answer about the cluster, 5 seconds if 0.
	TTL time.Duration
	// Listening is called when the server can be asked; nil for nobody.
	Listening func()
	Log       *slog.Logger
}

// Server answers names.
type Server struct {
	Config
	zone    *zone
	forward *forwarder
	metrics metrics
}

// New makes a server; Serve starts it.
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

// Collectors are the numbers of the server.
func (s *Server) Collectors() []prometheus.Collector { return s.metrics.collectors() }

// maxStreams is how many streams an address of the server has at a time.
const maxStreams = 500

// Serve answers until ctx ends.
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
		// Streams hold files of the process for a while; packets do not.
		for _, server := range []*dns.Server{{PacketConn: packets, Net: "udp"}, {Listener: netutil.LimitListener(streams, maxStreams), Net: "tcp", MaxTCPQueries: 1000}} {
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
	s.hold(ctx)
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// lookAfter is how often it is made sure that nobody has taken the addresses off the node.
const lookAfter = 30 * time.Second

// hold keeps the addresses on the node until ctx ends.
func (s *Server) hold(ctx context.Context) {
	look := time.NewTicker(lookAfter)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		for _, a := range s.Addresses {
			if err := ownAddress(a); err != nil {
				s.Log.Warn("Pods may not be able to ask for names", "err", err)
			}
		}
	}
}

// ownAddress gives the node an address on its loopback interface.
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
		out.Scope = unix.RT_SCOPE_HOST // nobody shall send from it unless he was asked at it
	}
	return out
}

// answered tells whether somebody else answers names at an address: another cluster of this machine has the same one.
func answered(a netip.Addr) bool {
	c, err := net.ListenPacket("udp", netip.AddrPortFrom(a, 53).String())
	if err == nil {
		_ = c.Close()
	}
	return errors.Is(err, unix.EADDRINUSE)
}

// Purge takes the addresses off the node again, those at which nobody answers.
func Purge(addresses []netip.Addr) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find the loopback interface: %w", err)
	}
	for _, a := range addresses {
		if answered(a) {
			continue
		}
		if err := netlink.AddrDel(lo, loopbackAddress(a)); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("remove the address %s: %w", a, err)
		}
	}
	return nil
}

// handler answers one message after the other.
func (s *Server) handler(ctx context.Context) dns.HandlerFunc {
	return func(w dns.ResponseWriter, r *dns.Msg) {
		start := time.Now()
		m, where := s.answer(ctx, r)
		mix(m.Answer)
		_, stream := w.RemoteAddr().(*net.TCPAddr)
		fit(r, m, stream)
		if err := w.WriteMsg(m); err != nil {
			s.Log.Debug("a question was not answered", "err", err)
		}
		s.metrics.note(where, m.Rcode, time.Since(start))
	}
}

// fit makes the answer as small as the asker wants it.
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

// The places that an answer can come from.
const (
	fromCluster = "cluster"
	fromOutside = "outside"
	fromNowhere = "refused"
)

// answer finds the answer to a message.
func (s *Server) answer(ctx context.Context, r *dns.Msg) (m *dns.Msg, where string) {
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
		s.chase(ctx, m, q)
		return m, fromCluster
	}
	if ip, ok := reverse(q.Name); ok && s.inside(ip) {
		m.Rcode, m.Ns = dns.RcodeNameError, []dns.RR{s.zone.reverseSOA(ip)}
		return m, fromCluster
	}
	from, err := s.forward.resolve(ctx, r)
	if err != nil {
		s.Log.Debug("a name outside could not be found", "name", q.Name, "err", err)
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

// chase adds what an alias of the cluster leads to, so that the asker need not ask again. Aliases that lead in circles end.
func (s *Server) chase(ctx context.Context, m *dns.Msg, q dns.Question) {
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
		a, ours := s.zone.answer(next)
		if !ours {
			s.chaseOutside(ctx, m, next)
			return
		}
		if m.Answer = append(m.Answer, a.answer...); len(a.answer) == 0 {
			m.Rcode, m.Ns = a.rcode, a.authority
			return
		}
	}
}

func (s *Server) chaseOutside(ctx context.Context, m *dns.Msg, q dns.Question) {
	m.Authoritative = false
	ask := new(dns.Msg)
	ask.SetQuestion(q.Name, q.Qtype)
	from, err := s.forward.resolve(ctx, ask)
	if err != nil {
		m.Rcode = dns.RcodeServerFailure
		return
	}
	m.Answer, m.Rcode = append(m.Answer, from.Answer...), from.Rcode
}

// mix changes the order of addresses, because many take the first.
func mix(list []dns.RR) {
	begin := 0
	for begin < len(list) && list[begin].Header().Rrtype == dns.TypeCNAME {
		begin++
	}
	rest := list[begin:]
	rand.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
}

// reverse reads the address out of a name for the way back.
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
