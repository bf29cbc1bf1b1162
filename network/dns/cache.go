package dns

import (
	"sync"
	"time"

	"github.com/miekg/dns"
)

// cache keeps answers of others for as long as they allow, and no longer than half a minute: who changes a name wants to see it.
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

// get returns a copy of an answer, whose times to live are what is left of them.
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

// put keeps an answer, if it is one.
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

// evict makes room: what is over goes, and if that is not much, others, as they come.
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

// lifetime is how long an answer holds: the shortest time of its records; for the answer that there is nothing, what the
// zone says about such answers.
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
