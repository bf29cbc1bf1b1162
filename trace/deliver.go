package trace

import (
	"time"

	"proa.dev/hop"
)

// consumer is an actor that got the event of a write.
type consumer struct {
	version
	actor string
}

// withDeliveries adds the deliveries of events to items, one for each write and consumer. A reconcile records how long its event took;
// the records of other actors begin when they get the event, so that the delivery is the time from the commit of the write until then.
func withDeliveries(items []*item) []*item {
	commits := map[version]time.Time{}
	for _, it := range items {
		v := version{it.UID, it.Rev}
		if _, known := commits[v]; !known && isWrite(it.Record) && it.UID != "" {
			commits[v] = it.end
		}
	}
	seen := map[consumer]bool{}
	out := items
	for _, it := range items {
		if it.CauseUID == "" || isWrite(it.Record) {
			continue
		}
		c := consumer{cause(it.Record), it.User}
		isFirst := !seen[c]
		seen[c] = true
		commit, known := commits[c.version]
		switch {
		case it.Verb == hop.Deliver:
			if known && it.Took[hop.Watch] == 0 && commit.Before(it.start) {
				*it = *it.deliveredIn(commit, it.start)
			}
		case it.Verb == hop.Reconcile && it.Took[hop.Watch] > 0:
			if d := it.cutDelivery(); isFirst {
				out = append(out, d)
			}
		case known && isFirst && beginsWithEvent(it.Record) && commit.Before(it.start):
			out = append(out, it.deliveredIn(commit, it.start))
		}
	}
	return out
}

// beginsWithEvent tells whether a record begins when an actor gets the event of the cause.
func beginsWithEvent(r *hop.Record) bool {
	return r.Verb == hop.ScheduleAttempt || r.Verb == hop.Program || r.Verb == hop.Receive || r.Verb == hop.Stop
}

// cutDelivery takes the time at the hop Watch out of an item, and returns an item that has only this.
func (it *item) cutDelivery() *item {
	from, to := it.start, earlier(it.start.Add(it.Took[hop.Watch]), it.end)
	d := it.deliveredIn(from, to)
	rest := *it.Record
	rest.Took[hop.Watch], rest.Wait[hop.Watch] = 0, 0
	it.Record, it.start = &rest, to
	return d
}

// deliveredIn returns the delivery of the event of an item's cause to its actor. The span has the ID of the hop in the item's own record.
func (it *item) deliveredIn(from, to time.Time) *item {
	r := &hop.Record{
		UID: it.CauseUID, Rev: it.CauseRev, CauseUID: it.CauseUID, CauseRev: it.CauseRev, Verb: hop.Deliver, Group: it.Group,
		Resource: it.Resource, Namespace: it.Namespace, Name: it.Name, User: it.User, Process: it.Process, Start: from,
	}
	r.Took[hop.Watch] = to.Sub(from)
	id := it.id
	if it.Verb != hop.Deliver {
		id = hashID(it.id, hop.Watch.String())
	}
	return &item{Record: r, id: id, start: from, end: to, isMoved: it.isMoved}
}
