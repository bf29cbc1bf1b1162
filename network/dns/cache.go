package dns

import (
	"sync"
	"time"

	"github.com/miekg/dns"
)

// cache keeps answers of upstream servers for their time to live, and at most for half a minute, so that changes are
// seen soon.
type cache struct {
	mu      sync.Mutex // guards answers
	answers map[question]kept
}

type kept struct {
	msg   *dns.Msg
	since time.Time
	until time.Time
}

const (
	maxAnswers = 10000
	longest    = 30 * time.Second
)

func newCache() *cache { return &cache{answers: map[question]kept{}} }

// get returns a copy of an answer with the remaining times to live, or nil.
func (c *cache) get(q question, now time.Time) *dns.Msg {
	c.mu.Lock()
	k, ok := c.answers[q]
	c.mu.Unlock()
	if !ok || !now.Before(k.until) {
		return nil
	}
	m := k.msg.Copy()
	age := uint32(now.Sub(k.since) / time.Second)
	for _, list := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		for _, rr := range list {
			rr.Header().Ttl -= min(age, rr.Header().Ttl)
		}
	}
	return m
}

// put stores an answer if it may be cached.
func (c *cache) put(q question, m *dns.Msg, now time.Time) {
	d := lifetime(m)
	if d <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.answers) >= maxAnswers {
		c.evict(now)
	}
	c.answers[q] = kept{m.Copy(), now, now.Add(d)}
}

// evict removes expired answers, and others at random if that frees too few.
func (c *cache) evict(now time.Time) {
	for q, k := range c.answers {
		if !now.Before(k.until) {
			delete(c.answers, q)
		}
	}
	for q := range c.answers {
		if len(c.answers) < maxAnswers*9/10 {
			return
		}
		delete(c.answers, q)
	}
}

// lifetime returns how long an answer may be cached: the shortest time to live of its records, or for negative answers
// what the SOA record of the zone says.
func lifetime(m *dns.Msg) time.Duration {
	if m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError {
		return 0
	}
	out := longest
	for _, rr := range m.Answer {
		out = min(out, time.Duration(rr.Header().Ttl)*time.Second)
	}
	if len(m.Answer) > 0 {
		return out
	}
	for _, rr := range m.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			return min(out, time.Duration(min(soa.Minttl, soa.Hdr.Ttl))*time.Second)
		}
	}
	return 0
}
