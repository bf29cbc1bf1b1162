package trace

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"proa.dev/hop"
)

// maxRecords is how many records a trace is made of at most.
const maxRecords = 5000

// quiet is how long nothing happens after an object is ready before the rest counts as another story.
const quiet = 10 * time.Second

// gathering collects the records that belong to the trace of one object.
type gathering struct {
	*Index
	// root is the write that began it, and first the first write of the object itself that followed from it.
	root, first int
	members     map[int]bool
	bound       map[types.UID]bool
	todo        []int
	dropped     int
}

// gather finds the records of the trace of an object; nil if there is no write of it.
func (x *Index) gather(object Ref) *gathering {
	g := &gathering{Index: x, members: map[int]bool{}, bound: map[types.UID]bool{}}
	if !g.chooseRoot(object) {
		return nil
	}
	g.addAncestors()
	g.add(g.first)
	for len(g.todo) > 0 {
		next := g.todo[0]
		g.todo = g.todo[1:]
		g.addConsequences(next)
	}
	g.addAnswers()
	return g
}

// addAnswers adds the first answers of the endpoints of the object that the trace is about. The Pods may have become ready because of
// another write than the one that the trace begins with.
func (g *gathering) addAnswers() {
	first := g.records[g.first]
	for _, i := range g.ofUID[first.UID] {
		if r := g.records[i]; r.Verb == hop.Answer && !r.Start.Before(first.Start) {
			g.add(i)
		}
	}
}

// chooseRoot chooses the newest write of the object by a user; without one the newest write of a user that led to a change of the
// object, and else the newest first cause that is known.
func (g *gathering) chooseRoot(object Ref) bool {
	memo := map[int]int{}
	own := g.ofName[object.withoutUID()]
	best, bestRank := -1, -3
	for _, i := range own {
		if uid := g.records[i].UID; object.UID != "" && uid != object.UID && uid != "" {
			continue
		}
		root := g.Index.root(i, memo)
		rank := 0
		switch {
		// Whoever may not write an object must not decide what others see of it, and least of all somebody who is not known.
		case g.records[root].Refused == hop.Authenticate:
			rank = -2
		case isUnauthorized(g.records[root]):
			rank = -1
		case root == i && isByUser(g.records[root]):
			rank = 2
		case isByUser(g.records[root]):
			rank = 1
		}
		if rank > bestRank || rank == bestRank && !g.records[root].Start.Before(g.records[best].Start) {
			best, bestRank = root, rank
		}
	}
	if best < 0 {
		return false
	}
	g.root, g.first = best, best
	if !slices.Contains(own, best) {
		g.first = own[slices.IndexFunc(own, func(i int) bool { return g.Index.root(i, memo) == best })] // the first one by start
	}
	return true
}

// addAncestors adds the writes that led from the root to the first write of the object, and the work between them.
func (g *gathering) addAncestors() {
	seen := map[int]bool{}
	for at := g.first; at != g.root && !seen[at]; {
		seen[at] = true
		before, known := g.writes[cause(g.records[at])]
		if !known {
			return
		}
		g.members[before] = true
		for _, j := range g.causedBy[cause(g.records[at])] {
			if w := g.records[j]; !isWrite(w) && isSameActor(w, g.records[at]) && !w.Start.After(g.records[at].Start) {
				g.members[j] = true
			}
		}
		at = before
	}
}

// add adds a record, and makes a note of it if something may have followed from it.
func (g *gathering) add(i int) {
	if g.members[i] {
		return
	}
	if len(g.members) >= maxRecords {
		g.dropped++
		return
	}
	g.members[i] = true
	if r := g.records[i]; isWrite(r) && r.UID != "" {
		g.todo = append(g.todo, i)
	}
}

// addConsequences adds what a write has caused, and what is known of an object that the write made, or that the trace is about,
// without a cause.
func (g *gathering) addConsequences(i int) {
	w := g.records[i]
	if v := (version{w.UID, w.Rev}); g.writes[v] == i || g.first == i {
		for _, j := range g.causedBy[v] {
			g.add(j)
		}
	}
	if g.bound[w.UID] || !isCreate(w) && w.UID != g.records[g.first].UID {
		return
	}
	g.bound[w.UID] = true
	for _, j := range g.ofUID[w.UID] {
		r := g.records[j]
		_, explained := g.writes[cause(r)]
		early := !isCreate(w) && r.Start.Before(w.Start) // nothing can have happened before a create, whatever the clock says
		if !explained && !early && !isByUser(r) {
			g.add(j)
		}
	}
}

// items returns the gathered records with their times, by start.
func (g *gathering) items(now time.Time) []*item {
	begin := g.records[g.root].Start
	out := make([]*item, 0, len(g.members))
	for i := range g.members {
		out = append(out, newItem(g.records[i], i == g.root, begin, now))
	}
	sortItems(out)
	out = withDeliveries(out)
	sortItems(out)
	return out
}

func sortItems(items []*item) {
	slices.SortStableFunc(items, func(a, b *item) int {
		return cmp.Or(a.start.Compare(b.start), cmp.Compare(a.Rev, b.Rev), cmp.Compare(mainHop(a.Record), mainHop(b.Record)),
			cmp.Compare(a.id, b.id))
	})
}

// cutLater leaves out what began after the object was ready and nothing happened for a while. A client that is slow to take an event does
// not count as something that happens. The first answer of a Pod to a client stays, because it is what the rest was for.
func cutLater(items []*item, ready time.Time) (kept []*item, later int) {
	end := ready
	for i, it := range items {
		if it.start.After(end.Add(quiet)) {
			kept = slices.Clone(items[:i])
			for _, it := range items[i:] {
				if it.Verb == hop.Answer {
					kept = append(kept, it)
				}
			}
			return kept, len(items) - len(kept)
		}
		if !it.Open && it.Verb != hop.Deliver && it.end.After(end) {
			end = it.end
		}
	}
	return items, 0
}

// item is a record with times that can be drawn: none ends before it begins, or in the future, or begins before the trace.
type item struct {
	*hop.Record
	id         string
	start, end time.Time
	isRoot     bool
	isMoved    bool // its times were not possible, and were moved
	isCritical bool
}

func newItem(r *hop.Record, isRoot bool, begin, now time.Time) *item {
	it := &item{Record: r, id: recordID(r), start: r.Start, isRoot: isRoot}
	var took time.Duration
	for _, d := range r.Took {
		took += max(d, 0)
	}
	it.end = r.Start.Add(took)
	if r.Open {
		it.end = now
	}
	if it.start.After(now) {
		it.start, it.isMoved = now, true
	}
	if it.start.Before(begin) {
		it.start, it.isMoved = begin, true
	}
	if it.end.After(now) {
		it.end, it.isMoved = now, true
	}
	if it.end.Before(it.start) {
		it.end, it.isMoved = it.start, true
	}
	return it
}
