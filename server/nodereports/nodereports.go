// Package nodereports receives what agents of nodes in other processes report about their work (package nodereport), and makes
// records of hops of it. A node is not believed about anything but the time that its own work has taken: what it works on must
// be there and its own, the clock is the server's, and sizes and rates are bounded.
package nodereports

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/kinds/nodereport"
	"proa.dev/server/authz"
	"proa.dev/server/state"
)

const (
	// burst is how many records a node may report at once, rate how many in a second in the long run.
	burst, rate = 2000, 50
	// clockWindow is how long a report counts for the difference of the clocks, and clockSamples how many do.
	clockWindow, clockSamples = time.Minute, 16
	// maxOpen is how many records of a node may be open.
	maxOpen = 256
	// forgetAfter is how long a node that sends nothing is remembered.
	forgetAfter = time.Hour
)

// Config is what a Receiver needs.
type Config struct {
	// NodeOf returns the name of the node whose agent a user is.
	NodeOf func(user.Info) (name string, isNode bool)
	// Find returns an object from the server's cache.
	Find func(on schema.GroupResource, namespace, name string) (kind.Object, bool)
	// Record stores a record, in place of the open record of the same work.
	Record func(hop.Record)
	// Open returns the records of a user that are open. There are some at the start of a server that has read what it stored
	// before.
	Open func(userName string) []hop.Record
}

// Kind returns the kind NodeReport of a server, whose state and records the functions return.
func Kind(objects func() *state.State, recorder func() *hop.Recorder) *kind.Def {
	return nodereport.Kind(New(Config{
		NodeOf: authz.NodeName, Record: func(r hop.Record) { recorder().Update(r) },
		Open: func(userName string) []hop.Record {
			return recorder().Select(func(r *hop.Record) bool { return r.Open && r.User == userName })
		},
		Find: func(on schema.GroupResource, namespace, name string) (kind.Object, bool) {
			return state.NodeView{State: objects()}.Object(on, namespace, name)
		},
	}).Receive)
}

// Receiver receives reports.
type Receiver struct {
	Config
	mu    sync.Mutex // guards nodes and what is in them
	nodes map[string]*node
}

// New returns a receiver.
func New(c Config) *Receiver { return &Receiver{Config: c, nodes: map[string]*node{}} }

// node is what is remembered of a node.
type node struct {
	lastReport time.Time
	credit     float64 // how many records it may report now
	// offsets are the differences between the time of the server when recent reports arrived and the time of the agent when they
	// were sent.
	offsets      []offset
	agentStarted time.Time
	// open are the records of work that goes on, as they were stored.
	open map[work]hop.Record
	// restored are the open records of an earlier process of the server, which does not know how the agent calls them.
	restored []hop.Record
}

type offset struct {
	at time.Time
	by time.Duration
}

// work identifies work that goes on, in the words of the agent.
type work struct {
	uid, verb string
	revision  int64
	start     int64 // on the agent's clock, in nanoseconds
}

// Receive stores the records of a report. Records that are not true of the node are left out: the object may just be gone.
func (c *Receiver) Receive(_ context.Context, d kind.Server, r *nodereport.NodeReport) error {
	who := d.User()
	name, isNode := c.NodeOf(who)
	if !isNode || name == "" || r.Node != name {
		return apierrors.NewForbidden(nodereport.Resource(), "", fmt.Errorf("only the agent of node %q may report its work", r.Node))
	}
	if len(r.Records) > nodereport.MaxRecords {
		return apierrors.NewBadRequest(fmt.Sprintf("a report has at most %d records", nodereport.MaxRecords))
	}
	if _, exists := c.Find(gr.Nodes, "", name); !exists {
		return nil // no Pod can be bound to it
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.node(who.GetName(), name, now)
	if !n.pay(len(r.Records), now) {
		return apierrors.NewTooManyRequests("the node reports more records than the server takes", 10)
	}
	check := checker{user: who.GetName(), node: name, offset: n.offset(r.Sent, now), now: now, find: c.Find}
	c.endEarlierWork(n, r.AgentStarted, &check)
	for i := range r.Records {
		c.store(n, &check, &r.Records[i])
	}
	return nil
}

// node returns what is remembered of a node, and forgets others that have been silent for long.
func (c *Receiver) node(userName, name string, now time.Time) *node {
	n := c.nodes[name]
	if n == nil {
		for other, x := range c.nodes {
			if now.Sub(x.lastReport) > forgetAfter {
				delete(c.nodes, other)
			}
		}
		n = &node{credit: burst, lastReport: now, open: map[work]hop.Record{}, restored: c.Open(userName)}
		c.nodes[name] = n
	}
	return n
}

// pay takes credit for records, and reports whether there was enough. A report costs as much as a record.
func (n *node) pay(records int, now time.Time) bool {
	n.credit = min(burst, n.credit+rate*now.Sub(n.lastReport).Seconds())
	n.lastReport = now
	cost := float64(max(records, 1))
	if n.credit < cost {
		return false
	}
	n.credit -= cost
	return true
}

// offset returns what must be added to times of the agent's clock: the smallest difference of recent reports, because a report
// can be late, and never early.
func (n *node) offset(sent, now time.Time) time.Duration {
	n.offsets = slices.DeleteFunc(n.offsets, func(o offset) bool { return now.Sub(o.at) > clockWindow })
	if len(n.offsets) >= clockSamples {
		n.offsets = slices.Delete(n.offsets, 0, len(n.offsets)-clockSamples+1)
	}
	n.offsets = append(n.offsets, offset{now, now.Sub(sent)})
	least := n.offsets[0].by
	for _, o := range n.offsets {
		least = min(least, o.by)
	}
	return least
}

// endEarlierWork ends the records that an earlier agent of the node has left open. This one started at started, on its clock.
func (c *Receiver) endEarlierWork(n *node, started time.Time, check *checker) {
	if started.Equal(n.agentStarted) {
		return
	}
	n.agentStarted = started
	const why = "the agent of the node was restarted"
	for key, r := range n.open {
		delete(n.open, key)
		c.end(r, why, check.now)
	}
	n.restored = slices.DeleteFunc(n.restored, func(r hop.Record) bool {
		isEarlier := r.Start.Before(started.Add(check.offset))
		if isEarlier {
			c.end(r, why, check.now)
		}
		return isEarlier
	})
}

// end ends an open record.
func (c *Receiver) end(r hop.Record, why string, now time.Time) {
	h := nodereport.HopOf(r.Verb)
	r.Open, r.Took[h] = false, max(now.Sub(r.Start), 0)
	if r.Error == "" {
		r.Error = why
	}
	c.Record(r)
}

// store stores a record if it is true of the node.
func (c *Receiver) store(n *node, check *checker, r *nodereport.Record) {
	key := work{string(r.UID), r.Verb, r.Revision, r.Start.UnixNano()}
	before, wasOpen := n.open[key]
	out, ok := check.record(r)
	if !ok && wasOpen {
		out, ok = check.ended(&before, r) // a Pod is often gone when the record of its stop arrives
	}
	if !ok {
		return
	}
	if !wasOpen {
		before, wasOpen = n.adopt(&out)
	}
	if wasOpen {
		out.Start = before.Start // the offset of the clocks may have changed, and by its start the open record is found
		check.bound(&out)
	}
	delete(n.open, key)
	if out.Open {
		if len(n.open) >= maxOpen {
			oldest := oldestOf(n.open)
			c.end(n.open[oldest], "the node has too much other work that goes on", check.now)
			delete(n.open, oldest)
		}
		n.open[key] = out
	}
	c.Record(out)
}

// adopt finds and removes the restored record of the same work. The clocks were compared anew since, and may differ a little.
func (n *node) adopt(r *hop.Record) (hop.Record, bool) {
	i := slices.IndexFunc(n.restored, func(old hop.Record) bool {
		return old.UID == r.UID && old.Rev == r.Rev && old.Verb == r.Verb && old.Start.Sub(r.Start).Abs() < time.Second
	})
	if i < 0 {
		return hop.Record{}, false
	}
	old := n.restored[i]
	n.restored = slices.Delete(n.restored, i, i+1)
	return old, true
}

func oldestOf(open map[work]hop.Record) (oldest work) {
	first := true
	for key := range open {
		if first || key.start < oldest.start {
			oldest, first = key, false
		}
	}
	return oldest
}
