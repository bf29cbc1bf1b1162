package proxysync

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/hop"
)

const (
	// maxRecorded is how many changes are recorded at a time; those beyond it are not.
	maxRecorded = 1000
	// maxOpen is how many of them the proxy may be unable to follow, and maxOpenOfNamespace how many of one namespace: anybody may make
	// objects that no proxy can follow, and those of others are still recorded then. The records of more are not open.
	maxOpen, maxOpenOfNamespace = maxRecorded / 2, maxRecorded / 8
)

// ProgramRecorder records how long it takes until the proxy follows the changes of Ingresses, Gateways and routes. On a nil
// ProgramRecorder all methods do nothing.
type ProgramRecorder struct {
	record func(hop.Record)
	node   string

	mu sync.Mutex // guards what follows
	// pending are the changes that the proxy does not follow yet; those of one object are merged.
	pending map[types.UID]*hop.Record
	// seen is, by resource, the newest revision whose change was looked at: views repeat older ones.
	seen map[schema.GroupResource]int64
}

// NewProgramRecorder returns a recorder for the proxy on a node; nil if record is nil.
func NewProgramRecorder(record func(hop.Record), node string) *ProgramRecorder {
	if record == nil {
		return nil
	}
	return &ProgramRecorder{record: record, node: node, pending: map[types.UID]*hop.Record{}, seen: map[schema.GroupResource]int64{}}
}

// SkipPresent makes the recorder ignore the objects that a view shows now.
func (p *ProgramRecorder) SkipPresent(on schema.GroupResource, v client.View) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for o := range v.List("") {
		rev, _ := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
		p.seen[on] = max(p.seen[on], rev)
	}
}

// Note begins the record of a change of an object, if it is one that users wait for: of more than the status.
func (p *ProgramRecorder) Note(on schema.GroupResource, e client.Event) {
	if p == nil || e.Gap {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.Rev <= p.seen[on] {
		return
	}
	p.seen[on] = e.Rev
	o := e.Object
	uid := o.GetUID()
	if e.Deleted {
		if r := p.pending[uid]; r != nil && !r.Open { // an open record ends when the proxy is configured without it
			delete(p.pending, uid)
		}
		return
	}
	if e.Old != nil && e.Old.GetUID() == uid && e.Old.GetGeneration() == o.GetGeneration() &&
		maps.Equal(e.Old.GetAnnotations(), o.GetAnnotations()) {
		return
	}
	if r := p.pending[uid]; r != nil {
		if !r.Open { // an open record is found again by its revision
			r.Rev, r.CauseRev = e.Rev, e.Rev
		}
		return
	}
	if len(p.pending) < maxRecorded {
		p.pending[uid] = &hop.Record{
			UID: uid, Rev: e.Rev, Verb: hop.Program, Group: on.Group, Resource: on.Resource, Namespace: o.GetNamespace(), Name: o.GetName(),
			User: "system:node:" + p.node, Start: time.Now(), CauseUID: uid, CauseRev: e.Rev,
		}
	}
}

// Take returns the changes that are pending. The proxy is configured now.
func (p *ProgramRecorder) Take() []*hop.Record {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pending) == 0 {
		return nil
	}
	out := slices.SortedFunc(maps.Values(p.pending), func(a, b *hop.Record) int {
		return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.UID, b.UID))
	})
	clear(p.pending)
	return out
}

// Programmed records that the proxy was configured with changes; that began at begin. The function tells whether the proxy serves the
// object of a change, and why it cannot, in which case the record stays open. Objects that are not for this proxy are not recorded.
func (p *ProgramRecorder) Programmed(changes []*hop.Record, begin time.Time, isServed func(*hop.Record) (bool, error)) {
	open, openOf := 0, map[string]int{}
	for _, r := range changes {
		served, err := isServed(r)
		if !served && !r.Open {
			continue
		}
		now, isNews := time.Now(), !r.Open
		wait := max(begin.Sub(r.Start), 0)
		r.Took[hop.Network], r.Wait[hop.Network] = now.Sub(r.Start), wait
		r.Open, r.Error = err != nil, ""
		r.Steps = []hop.Step{{Hop: hop.Network, Name: "routes", After: wait, Took: now.Sub(begin), Failed: err != nil}}
		switch {
		case err != nil:
			r.Error = err.Error()
			if r.Open = open < maxOpen && openOf[r.Namespace] < maxOpenOfNamespace; r.Open {
				open++
				openOf[r.Namespace]++
				p.keep(r)
			}
		case !served:
			r.Error = "it was deleted, or is not for this proxy any more"
		}
		if !r.Open || isNews {
			p.record(*r)
		}
	}
}

// keep makes a change pending again that the proxy cannot follow yet. A change of the same object that came in between is a part of it.
func (p *ProgramRecorder) keep(r *hop.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending[r.UID] = r
}
