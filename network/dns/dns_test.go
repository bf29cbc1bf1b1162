package dns

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"proa.dev/network/nettest"
)

var update = flag.Bool("update", false, "write the answers into the stories")

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

func world(t testing.TB, objects string) Config {
	c := Config{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("10.1.0.0/16")},
		ResolvConf: filepath.Join(t.TempDir(), "none")}
	services, endpointSlices, namespaces := nettest.NewView(), nettest.NewView(), nettest.NewView()
	c.Services, c.Slices, c.Namespaces = services, endpointSlices, namespaces
	for _, o := range nettest.Objects(t, objects) {
		switch o.(type) {
		case *corev1.Service:
			services.Put(o)
		case *discoveryv1.EndpointSlice:
			endpointSlices.Put(o)
		default:
			namespaces.Put(o)
		}
	}
	return c
}

// TestAnswers runs the cases in testdata: YAML objects, a line of dashes, and then questions, each with the answer
// below it.
func TestAnswers(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no stories", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			objects, questions, _ := strings.Cut(string(raw), "\n------\n")
			c := world(t, objects)
			c.Addresses = []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00::a")}
			s, err := New(c)
			if err != nil {
				t.Fatal(err)
			}
			got := objects + "\n------\n"
			for line := range strings.Lines(questions) {
				if strings.HasPrefix(line, "  ") {
					continue
				}
				got += line
				words := strings.Fields(line)
				if len(words) != 2 || words[0] == "#" {
					continue
				}
				r := new(dns.Msg)
				r.SetQuestion(words[0], dns.StringToType[words[1]])
				m, _ := s.answer(t.Context(), r, netip.Addr{})
				got += show(m)
			}
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(raw) {
				t.Errorf("got\n%s", got)
			}
		})
	}
}

func show(m *dns.Msg) string {
	var out strings.Builder
	fmt.Fprintf(&out, "  %s", dns.RcodeToString[m.Rcode])
	if len(m.Ns) > 0 {
		fmt.Fprintf(&out, " %s", dns.TypeToString[m.Ns[0].Header().Rrtype])
	}
	fmt.Fprintln(&out)
	for _, rr := range m.Answer {
		fmt.Fprintf(&out, "  %s\n", strings.ReplaceAll(rr.String(), "\t", " "))
	}
	for _, rr := range m.Extra {
		fmt.Fprintf(&out, "  + %s\n", strings.ReplaceAll(rr.String(), "\t", " "))
	}
	return out.String()
}

const webService = `
kind: Namespace
metadata: {name: default}
---
kind: Service
metadata: {name: web}
spec: {clusterIP: 10.96.0.11, clusterIPs: [10.96.0.11], ports: [{name: http, port: 80}]}
---
kind: Service
metadata: {name: out}
spec: {type: ExternalName, externalName: name.example.org}
`

// outside is an upstream server; it counts questions.
func outside(t *testing.T, addr string, handle dns.HandlerFunc) (at string, count *atomic.Int64) {
	t.Helper()
	count = &atomic.Int64{}
	packets, err := net.ListenPacket("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	streams, err := net.Listen("tcp", packets.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	counted := func(w dns.ResponseWriter, r *dns.Msg) {
		count.Add(1)
		handle(w, r)
	}
	for _, s := range []*dns.Server{{PacketConn: packets, Handler: dns.HandlerFunc(counted)},
		{Listener: streams, Handler: dns.HandlerFunc(counted)}} {
		done := make(chan struct{})
		go func() { defer close(done); _ = s.ActivateAndServe() }()
		t.Cleanup(func() {
			_ = packets.Close()
			_ = streams.Close()
			<-done
		})
	}
	return packets.LocalAddr().String(), count
}

// yes answers every question for an address, with many records if the name asks for them.
func yes(w dns.ResponseWriter, r *dns.Msg) {
	m := new(dns.Msg)
	m.SetReply(r)
	q := r.Question[0]
	_, packet := w.RemoteAddr().(*net.UDPAddr)
	switch {
	case strings.HasPrefix(q.Name, "none."):
		m.Rcode = dns.RcodeNameError
		rr, _ := dns.NewRR("example.org. 20 IN SOA ns. mail. 1 1 1 1 10")
		m.Ns = append(m.Ns, rr)
	case strings.HasPrefix(q.Name, "large.") && packet:
		m.Truncated = true
	case strings.HasPrefix(q.Name, "large."):
		for i := range 100 {
			m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: 1, Ttl: 20},
				A: net.IPv4(9, 9, 9, byte(i))})
		}
	case q.Qtype == dns.TypeA:
		m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: 1, Ttl: 20}, A: net.IPv4(9, 9, 9, 9)})
	}
	_ = w.WriteMsg(m)
}

func TestOutside(t *testing.T) {
	nettest.Need(t)
	at, count := outside(t, "127.0.0.1:0", yes)
	stub, stubCount := outside(t, "127.0.0.1:0", yes)
	c := world(t, webService)
	host, port, _ := net.SplitHostPort(at)
	if err := os.WriteFile(c.ResolvConf, []byte("nameserver 127.0.0.9\nnameserver "+host+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c.Stubs = map[string][]string{"corp.example.org": {stub}}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	// Names of servers in the file have no ports; the test's server cannot have the usual one.
	s.forward.reload()
	for i := range s.forward.servers {
		s.forward.servers[i] = strings.Replace(s.forward.servers[i], ":53", ":"+port, 1)
	}
	ask := func(name string, kind uint16) string {
		r := new(dns.Msg)
		r.SetQuestion(name, kind)
		m, _ := s.answer(t.Context(), r, netip.Addr{})
		return strings.TrimSpace(show(m))
	}
	nettest.Same(t, "a name", ask("a.example.org.", dns.TypeA), "NOERROR\n  a.example.org. 20 IN A 9.9.9.9")
	before := count.Load()
	for range 5 {
		nettest.Same(t, "again", ask("A.example.ORG.", dns.TypeA), "NOERROR\n  a.example.org. 20 IN A 9.9.9.9")
		nettest.Same(t, "nothing", ask("none.example.org.", dns.TypeA), "NXDOMAIN SOA")
	}
	if got := count.Load() - before; got != 1 {
		t.Errorf("%d questions went out for one that was new", got)
	}
	if got := ask("large.example.org.", dns.TypeA); strings.Count(got, "\n") != 100 {
		t.Errorf("a large answer: %s", got)
	}
	nettest.Same(t, "alias", ask("out.default.svc.cluster.local.", dns.TypeA),
		"NOERROR\n  out.default.svc.cluster.local. 5 IN CNAME name.example.org.\n  name.example.org. 20 IN A 9.9.9.9")
	before = count.Load()
	nettest.Same(t, "stub", ask("x.corp.example.org.", dns.TypeA), "NOERROR\n  x.corp.example.org. 20 IN A 9.9.9.9")
	if stubCount.Load() != 1 || count.Load() != before {
		t.Error("the zone's own server was not asked")
	}
	nettest.Same(t, "addresses of the cluster stay here", ask("9.0.1.10.in-addr.arpa.", dns.TypePTR), "NXDOMAIN SOA")
	if count.Load() != before {
		t.Error("a question about the cluster went out")
	}
	// The file changes.
	if err := os.WriteFile(c.ResolvConf, []byte("nameserver 127.0.0.8\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.forward.changed, s.forward.checked = time.Time{}, time.Time{}
	nettest.Same(t, "nobody there", ask("b.example.org.", dns.TypeA), "SERVFAIL")
}

func TestServe(t *testing.T) {
	nettest.Need(t)
	c := world(t, webService)
	c.Addresses = []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00:96::a")}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Serve(ctx) }()
	for _, network := range []string{"udp", "tcp"} {
		for _, a := range c.Addresses {
			r := new(dns.Msg)
			r.SetQuestion("WEB.default.svc.cluster.local.", dns.TypeA)
			var m *dns.Msg
			for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
				m, _, err = (&dns.Client{Net: network}).Exchange(r, netip.AddrPortFrom(a, 53).String())
				if err == nil || time.Now().After(end) {
					break
				}
			}
			if err != nil {
				t.Fatal(network, a, err)
			}
			nettest.Same(t, network, strings.TrimSpace(show(m)), "NOERROR\n  WEB.default.svc.cluster.local. 5 IN A 10.96.0.11")
		}
	}
	// As long as somebody answers there, the addresses stay: two clusters of a machine may have the same.
	if err := Purge(c.Addresses); err != nil {
		t.Error(err)
	}
	if got := onLoopback(t); !slices.Contains(got, "10.96.0.10") || !slices.Contains(got, "fd00:96::a") {
		t.Errorf("after a purge beside a server that runs the node has %v", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := Purge(c.Addresses); err != nil {
		t.Error(err)
	}
	if got := onLoopback(t); slices.Contains(got, "10.96.0.10") || slices.Contains(got, "fd00:96::a") {
		t.Errorf("after a purge the node has %v", got)
	}
	if err := Purge(c.Addresses); err != nil {
		t.Error(err)
	}
}

func onLoopback(t *testing.T) (out []string) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	list, err := netlink.AddrList(lo, netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		out = append(out, a.IP.String())
	}
	return out
}

func TestSize(t *testing.T) {
	big := func() *dns.Msg {
		m := new(dns.Msg)
		m.SetQuestion("a.", dns.TypeA)
		for i := range 200 {
			m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: "a.", Rrtype: dns.TypeA, Class: 1}, A: net.IPv4(1, 1, 1, byte(i))})
		}
		return m
	}
	for _, c := range []struct {
		edns   uint16
		stream bool
		most   int
	}{{0, false, 512}, {4096, false, 1232}, {600, false, 600}, {0, true, 65535}} {
		r, m := new(dns.Msg), big()
		r.SetQuestion("a.", dns.TypeA)
		if c.edns > 0 {
			r.SetEdns0(c.edns, false)
		}
		fit(r, m, c.stream)
		if m.Len() > c.most || m.Truncated == c.stream {
			t.Errorf("%+v: %d bytes, truncated: %v", c, m.Len(), m.Truncated)
		}
	}
}

func TestCacheForgets(t *testing.T) {
	c, now := newCache(), time.Now()
	m := new(dns.Msg)
	m.SetQuestion("a.", dns.TypeA)
	m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: "a.", Rrtype: dns.TypeA, Class: 1, Ttl: 10}, A: net.IPv4(1, 1, 1, 1)}}
	q := question{name: "a.", kind: dns.TypeA}
	c.put(q, m, now)
	if got := c.get(q, now.Add(4*time.Second)); got == nil || got.Answer[0].Header().Ttl != 6 {
		t.Errorf("after four of ten seconds: %v", got)
	}
	if got := c.get(q, now.Add(10*time.Second)); got != nil {
		t.Errorf("after ten of ten seconds: %v", got)
	}
	for i := range maxAnswers + 10 {
		c.put(question{name: fmt.Sprint(i)}, m, now)
	}
	if n := len(c.answers); n > maxAnswers {
		t.Errorf("%d answers are kept", n)
	}
}

func FuzzAnswer(f *testing.F) {
	for _, name := range []string{"web.default.svc.cluster.local.", "_http._tcp.web.default.svc.cluster.local.",
		"1-2-3-4.default.pod.cluster.local.", "1.0.96.10.in-addr.arpa."} {
		f.Add(name, uint16(dns.TypeA))
	}
	z := world(f, webService)
	s, err := New(z)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name string, kind uint16) {
		name = dns.Fqdn(name)
		if _, ok := dns.IsDomainName(name); !ok {
			return
		}
		q := dns.Question{Name: name, Qtype: kind, Qclass: dns.ClassINET}
		if a, ok := s.zone.answer(q); ok {
			m := &dns.Msg{Question: []dns.Question{q}, Answer: a.answer, Ns: a.authority, Extra: a.extra}
			if _, err := m.Pack(); err != nil {
				t.Skip() // a name that cannot be asked
			}
		}
	})
}

// TestFlood asks for ever new names outside, whose server does not answer: the pending queries of one client and of all
// are bounded, and names of the cluster are still answered.
func TestFlood(t *testing.T) {
	nettest.Need(t)
	hold := make(chan struct{})
	stub, _ := outside(t, "127.0.0.1:0", func(w dns.ResponseWriter, r *dns.Msg) { <-hold; yes(w, r) })
	c := world(t, webService)
	c.Stubs = map[string][]string{"example.org": {stub}}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(client byte, name string) string {
		r := new(dns.Msg)
		r.SetQuestion(name, dns.TypeA)
		m, _ := s.answer(t.Context(), r, netip.AddrFrom4([4]byte{10, 0, 0, client}))
		return strings.TrimSpace(show(m))
	}
	waiting := func() int {
		s.forward.mu.Lock()
		defer s.forward.mu.Unlock()
		return len(s.forward.asking)
	}
	var wg sync.WaitGroup
	for client := range maxAsking / maxWaiting {
		for i := range maxWaiting {
			wg.Go(func() { ask(byte(client), fmt.Sprintf("n%d.%d.example.org.", i, client)) })
		}
		for waiting() < (client+1)*maxWaiting {
			time.Sleep(time.Millisecond)
		}
		nettest.Same(t, "one more of the same client", ask(byte(client), "n0.0.example.org."), "SERVFAIL")
	}
	nettest.Same(t, "one more", ask(99, "more.example.org."), "SERVFAIL")
	nettest.Same(t, "the cluster", ask(99, "web.default.svc.cluster.local."), "NOERROR\n  web.default.svc.cluster.local. 5 IN A 10.96.0.11")
	close(hold)
	wg.Wait()
	nettest.Same(t, "later", ask(99, "more.example.org."), "NOERROR\n  more.example.org. 20 IN A 9.9.9.9")
}

func TestOtherEDNS(t *testing.T) {
	s, err := New(world(t, webService))
	if err != nil {
		t.Fatal(err)
	}
	r := new(dns.Msg)
	r.SetQuestion("web.default.svc.cluster.local.", dns.TypeA)
	r.SetEdns0(1232, false).IsEdns0().SetVersion(1)
	m, _ := s.answer(t.Context(), r, netip.Addr{})
	fit(r, m, false)
	wire, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	got := new(dns.Msg)
	if err := got.Unpack(wire); err != nil || got.Rcode != dns.RcodeBadVers {
		t.Errorf("an unknown version is answered by %s (%v)", dns.RcodeToString[got.Rcode], err)
	}
}
