package trace

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"proa.dev/hop"
)

// slack is how long work may go on after what followed from it has begun.
const slack = 20 * time.Millisecond

// maxPath is how many records the critical path has at most.
const maxPath = 1000

// segment is a part of the critical path: the time from one moment to another that was spent on a record, or waiting for it to begin.
type segment struct {
	item     *item
	from, to time.Time
	isGap    bool // nothing that is known happened; the item began at the end of it
}

// path finds the critical path, which ends with the item last: it goes back from there, each time to the related record that ended
// last before the present one began.
type path struct {
	ofUID    map[types.UID][]*item
	causedBy map[version][]*item
	writes   map[version]*item
	used     map[*item]bool
	// bindings and firstOnNode have for each Pod its binding, and what its node did first.
	bindings, firstOnNode map[types.UID]*item
}

// criticalPath returns the critical path from begin to the end of an item, in order.
func criticalPath(items []*item, last *item, begin time.Time) []segment {
	p := &path{
		ofUID: map[types.UID][]*item{}, causedBy: map[version][]*item{}, writes: map[version]*item{}, used: map[*item]bool{},
		bindings: map[types.UID]*item{}, firstOnNode: map[types.UID]*item{},
	}
	for _, it := range items {
		p.ofUID[it.UID] = append(p.ofUID[it.UID], it)
		if it.CauseUID != "" {
			p.causedBy[cause(it.Record)] = append(p.causedBy[cause(it.Record)], it)
		}
		if v := (version{it.UID, it.Rev}); isWrite(it.Record) && p.writes[v] == nil {
			p.writes[v] = it
		}
		if isBinding(it.Record) {
			p.bindings[it.UID] = it
		}
		if p.firstOnNode[it.UID] == nil && isStartOnNode(it.Record) {
			p.firstOnNode[it.UID] = it
		}
	}
	var out []segment
	at := last.end
	for cur := last; len(out) < maxPath; {
		p.used[cur] = true
		from := earlier(cur.start, at) // a clock that is ahead may say that it began after what followed from it
		out = append(out, segment{item: cur, from: from, to: at})
		at = from
		if cur.isRoot || !at.After(begin) {
			break
		}
		before := p.before(cur, at)
		until := begin
		if before != nil {
			until = earlier(before.end, at)
		}
		if until.Before(at) {
			out = append(out, segment{item: cur, from: until, to: at, isGap: true})
			at = until
		}
		if before == nil {
			break
		}
		cur = before
	}
	slices.Reverse(out)
	return out
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// before returns the related item that ended last before a moment, or was at work then; nil if there is none.
func (p *path) before(cur *item, at time.Time) *item {
	if binding := p.bindings[cur.UID]; binding != nil && !p.used[binding] && p.beginsOnNode(cur) {
		return cmp.Or(p.delivery(cur, at), binding)
	}
	var best *item
	var bestEnd time.Time
	consider := func(it *item) {
		if it == cur || p.used[it] || !it.start.Before(at) {
			return
		}
		end := it.end
		if end.After(at) {
			// The event of a cause is seen before its request has ended.
			isLate := end.After(at.Add(slack)) || end.Sub(at) > at.Sub(it.start) // then they have rather been done at the same time
			if !isWorkAround(it, cur) && !isCauseOf(it, cur) && isLate {
				return
			}
			end = at
		}
		if best == nil || end.After(bestEnd) || end.Equal(bestEnd) && isCloser(it, best, cur) {
			best, bestEnd = it, end
		}
	}
	why := cause(cur.Record)
	exact := p.writes[why]
	if exact != nil {
		consider(exact)
	}
	if cur.CauseUID != "" {
		for _, it := range p.causedBy[why] {
			if !isWrite(it.Record) && isSameActor(it.Record, cur.Record) {
				consider(it)
			}
		}
	}
	isCauseKnown := best != nil && exact != nil
	if cur.CauseUID == "" || cur.CauseUID == cur.UID {
		for _, it := range p.ofUID[cur.UID] {
			// What others do about the object concerns this actor only by what they write, and not even that when its cause is known.
			isRelated := isSameActor(it.Record, cur.Record) || isWrite(it.Record) && !isCauseKnown
			if it.Verb != hop.Deliver && isRelated {
				consider(it)
			}
		}
	} else if exact == nil {
		for _, it := range p.ofUID[cur.CauseUID] {
			if isWrite(it.Record) {
				consider(it)
			}
		}
	}
	return best
}

// beginsOnNode tells whether an item is the first that a node did about a Pod, or the delivery of the event with which that began. It
// follows from the Pod's binding, whatever the clock of the node says, and although the first event that the node got may be that of a
// later write.
func (p *path) beginsOnNode(it *item) bool {
	first := p.firstOnNode[it.UID]
	if first == nil || it.Verb != hop.Deliver {
		return first == it
	}
	return it.User == first.User && cause(it.Record) == cause(first.Record)
}

// delivery returns the delivery of the event with which an item began; nil if there is none before a moment.
func (p *path) delivery(cur *item, at time.Time) *item {
	for _, it := range p.causedBy[cause(cur.Record)] {
		if it.Verb == hop.Deliver && it.User == cur.User && !p.used[it] && it.start.Before(at) {
			return it
		}
	}
	return nil
}

// isCauseOf tells whether an item is the write that caused another one.
func isCauseOf(it, other *item) bool {
	return isWrite(it.Record) && cause(other.Record) == (version{it.UID, it.Rev})
}

// isCloser tells which of two items that ended at the same moment led to a third one: what belongs to its cause, and else what began later.
func isCloser(a, b, third *item) bool {
	belongs := func(it *item) bool {
		isSibling := third.CauseUID != "" && cause(it.Record) == cause(third.Record) && isSameActor(it.Record, third.Record)
		return isSibling || isCauseOf(it, third)
	}
	if x, y := belongs(a), belongs(b); x != y {
		return x
	}
	return a.start.After(b.start)
}

// isStartOnNode tells whether a record is of what a node did to run a Pod.
func isStartOnNode(r *hop.Record) bool {
	isOther := r.Verb == hop.Deliver || r.Verb == hop.Stop
	return !isOther && r.Group == "" && r.Resource == "pods" && strings.HasPrefix(r.User, nodePrefix)
}

// isWorkAround tells whether an item is the work of the actor that another one, which is a write, is a part of.
func isWorkAround(outer, inner *item) bool {
	isWork := outer.Verb == hop.Reconcile || outer.Verb == hop.ScheduleAttempt
	return isWork && isWrite(inner.Record) && isSameActor(outer.Record, inner.Record)
}

// shares returns what each part of a segment adds to the critical path, waiting apart from working.
func (s segment) shares() []Share {
	if s.isGap {
		name := watchLabel
		if isWrite(s.item.Record) {
			name = unknownLabel
		}
		return []Share{{Span: s.item.id, Name: name, Took: s.to.Sub(s.from), Wait: true}}
	}
	var wait, work time.Duration
	for _, part := range hopsOf(s.item) {
		from, to := part.start, part.start.Add(part.took)
		turn := from.Add(part.wait)
		wait += overlap(from, turn, s.from, s.to)
		work += overlap(turn, to, s.from, s.to)
	}
	work += s.to.Sub(s.from) - wait - work // of an open record the hops are not complete
	var out []Share
	if wait > 0 {
		out = append(out, Share{Span: s.item.id, Name: label(s.item), Took: wait, Wait: true})
	}
	if work > 0 {
		out = append(out, Share{Span: s.item.id, Name: label(s.item), Took: work})
	}
	return out
}

// overlap returns how long two periods have in common.
func overlap(from, to, otherFrom, otherTo time.Time) time.Duration {
	if from.Before(otherFrom) {
		from = otherFrom
	}
	return max(0, earlier(to, otherTo).Sub(from))
}
