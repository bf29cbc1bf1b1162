package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// forwarder forwards queries for names outside the cluster to upstream servers.
type forwarder struct {
	resolvConf string
	stubs      map[string][]string // by zone, with a dot at the end
	self       []netip.Addr
	cache      *cache

	mu      sync.Mutex // guards the rest
	servers []string
	checked time.Time // when the file was checked last
	changed time.Time // the modification time of the file
	good    string    // the server that answered last
	asking  map[question]*pendingQuery
	waiting map[netip.Addr]int // how many queries of a client wait
}

// question identifies equal queries.
type question struct {
	name        string
	kind        uint16
	dnssec, raw bool // the DO and CD bits of the query
}

// pendingQuery is a query that is under way, which several clients may wait for.
type pendingQuery struct {
	done chan struct{}
	msg  *dns.Msg
	err  error
}

// The timeouts: for one upstream server, and for all of them together.
const (
	patience      = 2 * time.Second
	wholePatience = 6 * time.Second
	recheck       = 5 * time.Second
)

// maxAsking is how many upstream queries may be under way. Each has a socket, and a Pod that asks for ever new names
// must not exhaust them.
const maxAsking = 1000

// maxWaiting is how many queries of one client may wait for upstream servers, so that it leaves some to the others.
const maxWaiting = maxAsking / 4

// errBusy means that too many upstream queries are under way.
var errBusy = errors.New("too many questions about names outside are waiting for answers")

func newForwarder(c Config) (*forwarder, error) {
	f := &forwarder{resolvConf: c.ResolvConf, stubs: map[string][]string{}, self: c.Addresses, cache: newCache(),
		asking: map[question]*pendingQuery{}, waiting: map[netip.Addr]int{}}
	for name, servers := range c.Stubs {
		for _, s := range servers {
			addr, ok := withPort(s, "53")
			if !ok {
				return nil, fmt.Errorf("cluster DNS: the server %q of the zone %q is not an address", s, name)
			}
			f.stubs[dns.CanonicalName(name)] = append(f.stubs[dns.CanonicalName(name)], addr)
		}
	}
	return f, nil
}

// withPort completes the address of a server.
func withPort(s, port string) (string, bool) {
	if a, err := netip.ParseAddrPort(s); err == nil {
		return a.String(), true
	}
	a, err := netip.ParseAddr(strings.Trim(s, "[]"))
	return net.JoinHostPort(a.String(), port), err == nil
}

// resolve returns the answer to a query of a client. The caller may change it.
func (f *forwarder) resolve(ctx context.Context, r *dns.Msg, client netip.Addr) (*dns.Msg, error) {
	q := question{name: dns.CanonicalName(r.Question[0].Name), kind: r.Question[0].Qtype, raw: r.CheckingDisabled}
	if o := r.IsEdns0(); o != nil {
		q.dnssec = o.Do()
	}
	if m := f.cache.get(q, time.Now()); m != nil {
		return m, nil
	}
	f.mu.Lock()
	a, waits := f.asking[q]
	if !waits && len(f.asking) >= maxAsking || f.waiting[client] >= maxWaiting {
		f.mu.Unlock()
		return nil, errBusy
	}
	f.waiting[client]++
	defer f.leave(client)
	if !waits {
		a = &pendingQuery{done: make(chan struct{})}
		f.asking[q] = a
	}
	f.mu.Unlock()
	if !waits {
		a.msg, a.err = f.ask(ctx, q)
		f.mu.Lock()
		delete(f.asking, q)
		f.mu.Unlock()
		if a.err == nil {
			f.cache.put(q, a.msg, time.Now())
		}
		close(a.done)
	}
	select {
	case <-a.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if a.err != nil {
		return nil, a.err
	}
	return a.msg.Copy(), nil
}

// leave records that a query of a client waits no longer.
func (f *forwarder) leave(client netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waiting[client]--; f.waiting[client] == 0 {
		delete(f.waiting, client)
	}
}

// ask asks the servers one after the other, starting with the one that answered last.
func (f *forwarder) ask(ctx context.Context, q question) (*dns.Msg, error) {
	servers := f.serversFor(q.name)
	if len(servers) == 0 {
		return nil, fmt.Errorf("there is no server for names outside the cluster in %s", f.resolvConf)
	}
	ctx, cancel := context.WithTimeout(ctx, wholePatience)
	defer cancel()
	m := new(dns.Msg)
	m.SetQuestion(q.name, q.kind)
	m.CheckingDisabled = q.raw
	m.SetEdns0(1232, q.dnssec)
	var errs []error
	for _, s := range servers {
		answer, err := exchange(ctx, m, s)
		if err == nil && answer.Rcode != dns.RcodeServerFailure && answer.Rcode != dns.RcodeRefused {
			f.mu.Lock()
			f.good = s
			f.mu.Unlock()
			return answer, nil
		}
		if err == nil {
			err = fmt.Errorf("%s answers %s", s, dns.RcodeToString[answer.Rcode])
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// exchange asks one server over UDP, or over TCP if the answer is truncated.
func exchange(ctx context.Context, m *dns.Msg, server string) (*dns.Msg, error) {
	for _, network := range []string{"udp", "tcp"} {
		c := &dns.Client{Net: network, Timeout: patience, UDPSize: 1232}
		answer, _, err := c.ExchangeContext(ctx, m.Copy(), server)
		if err != nil {
			return nil, err
		}
		if len(answer.Question) != 1 || !strings.EqualFold(answer.Question[0].Name, m.Question[0].Name) ||
			answer.Question[0].Qtype != m.Question[0].Qtype {
			return nil, fmt.Errorf("%s answers another question", server)
		}
		if !answer.Truncated || network == "tcp" {
			answer.Extra = slices.DeleteFunc(answer.Extra, func(rr dns.RR) bool { return rr.Header().Rrtype == dns.TypeOPT })
			return answer, nil
		}
	}
	return nil, errors.New("no answer") // not reached: the second attempt returns above
}

// serversFor returns the servers for a name: those of the longest matching zone, or those of the node.
func (f *forwarder) serversFor(name string) []string {
	var best string
	for zone := range f.stubs {
		if dns.IsSubDomain(zone, name) && len(zone) > len(best) {
			best = zone
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	list := f.stubs[best]
	if best == "" {
		f.reload()
		list = f.servers
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b string) int {
		switch {
		case a == f.good && b != f.good:
			return -1
		case b == f.good && a != f.good:
			return 1
		}
		return 0
	})
	return list
}

// reload reads the servers of the node again if their file has changed; it checks every few seconds at most. Addresses
// of this server are left out, because forwarding to itself would never end.
func (f *forwarder) reload() {
	now := time.Now()
	if now.Sub(f.checked) < recheck {
		return
	}
	f.checked = now
	info, err := os.Stat(f.resolvConf)
	if err != nil || info.ModTime().Equal(f.changed) {
		return
	}
	c, err := dns.ClientConfigFromFile(f.resolvConf)
	if err != nil {
		return
	}
	f.changed, f.servers = info.ModTime(), nil
	for _, s := range c.Servers {
		addr, ok := withPort(s, c.Port)
		a, err := netip.ParseAddrPort(addr)
		if ok && err == nil && !slices.Contains(f.self, a.Addr()) {
			f.servers = append(f.servers, addr)
		}
	}
}

// rcodeName returns the name of a response code for metrics.
func rcodeName(n int) string {
	if s, ok := dns.RcodeToString[n]; ok {
		return s
	}
	return strconv.Itoa(n)
}
