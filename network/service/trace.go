package service

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/network/firstanswer"
)

// maxTraced is how many changes are recorded at a time; those beyond it are not.
const maxTraced = 1000

// tracer records how long it takes until the rules follow the changes of Services and EndpointSlices. A nil record function
// makes all methods do nothing. It is guarded by the mutex of the proxy.
type tracer struct {
	record func(hop.Record)
	node   string
	// expect waits for the first answer of a Pod; it may be nil.
	expect func(hop.Record, ...firstanswer.Endpoint)
	// hasPod tells whether a Pod of the node is in a namespace and has an address; nil believes all.
	hasPod func(uid types.UID, namespace string, addr netip.Addr) bool
	// answers tells whether the DNS server of the node answers for the Service of a change; nil if there is none.
	answers func(kind.Object) bool
	// pending are the changes whose rules are not written yet; those of one object are merged.
	pending map[types.UID]*hop.Record
	// seen is, by resource, the newest revision whose change was looked at: views repeat older ones.
	seen map[string]int64
}

// skipPresent makes the tracer ignore the objects that views show now.
func (t *tracer) skipPresent(views ...client.View) {
	if t.record == nil {
		return
	}
	t.pending, t.seen = map[types.UID]*hop.Record{}, map[string]int64{}
	for _, v := range views {
		for o := range v.List("") {
			if _, resource := tracedResource(o); resource != "" {
				rev, _ := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
				t.seen[resource] = max(t.seen[resource], rev)
			}
		}
	}
}

// tracedResource returns the group and resource of an object whose changes are recorded, empty for others.
func tracedResource(o kind.Object) (group, resource string) {
	switch o.(type) {
	case *corev1.Service:
		return "", "services"
	case *discoveryv1.EndpointSlice:
		return discoveryv1.GroupName, "endpointslices"
	}
	return "", ""
}

// note begins the record of a change, if one is to be recorded.
func (t *tracer) note(e client.Event) {
	if t.record == nil {
		return
	}
	_, resource := tracedResource(e.Object)
	if resource == "" || e.Rev <= t.seen[resource] {
		return
	}
	t.seen[resource] = e.Rev
	uid := e.Object.GetUID()
	if e.Deleted {
		t.forget(uid)
		return
	}
	if !changesTraffic(e.Object, e.Old) {
		return
	}
	t.expectAnswers(e)
	if r := t.pending[uid]; r != nil {
		if !r.Open { // an open record is found again by its revision
			r.Rev, r.CauseRev = e.Rev, e.Rev
		}
		return
	}
	if len(t.pending) < maxTraced {
		r := t.newRecord(e, hop.Program)
		t.pending[uid] = &r
		t.noteDNS(t.pending[uid], e.Object)
	}
}

// newRecord returns the record of work that begins with a change.
func (t *tracer) newRecord(e client.Event, verb string) hop.Record {
	group, resource := tracedResource(e.Object)
	uid := e.Object.GetUID()
	return hop.Record{
		UID: uid, Rev: e.Rev, Verb: verb, Group: group, Resource: resource, Namespace: e.Object.GetNamespace(), Name: e.Object.GetName(),
		User: "system:node:" + t.node, Start: time.Now(), CauseUID: uid, CauseRev: e.Rev,
	}
}

// forget ends the record of an object that was deleted. If it is not open, nobody knows of it.
func (t *tracer) forget(uid types.UID) {
	r := t.pending[uid]
	delete(t.pending, uid)
	if r != nil && r.Open {
		r.Open, r.Error = false, "it was deleted"
		r.Took[hop.Network] = time.Since(r.Start)
		t.record(*r)
	}
}

// dnsStep is the name of the step that says when the DNS server of the node answers.
const dnsStep = "dns"

// noteDNS adds to the record of a change when the DNS server answers for the Service. The server reads the views from which the change
// comes, so it answers now or has to wait for another change.
func (t *tracer) noteDNS(r *hop.Record, o kind.Object) {
	if t.answers != nil && t.answers(o) {
		r.Steps = []hop.Step{{Hop: hop.Network, Name: dnsStep, Took: time.Since(r.Start)}}
	}
}

// changesTraffic reports whether a change is one that users wait for: a new or changed Service, or other ready endpoints.
func changesTraffic(now, old kind.Object) bool {
	switch now := now.(type) {
	case *corev1.Service:
		before, _ := old.(*corev1.Service)
		return before == nil || !apiequality.Semantic.DeepEqual(&before.Spec, &now.Spec)
	case *discoveryv1.EndpointSlice:
		before, _ := old.(*discoveryv1.EndpointSlice)
		return !maps.Equal(readyAddresses(before), readyAddresses(now))
	}
	return false
}

// readyAddresses returns the addresses of the ready endpoints of a slice, which may be nil.
func readyAddresses(s *discoveryv1.EndpointSlice) map[string]bool {
	out := map[string]bool{}
	if s == nil {
		return out
	}
	for i := range s.Endpoints {
		if e := &s.Endpoints[i]; len(e.Addresses) > 0 && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
			out[e.Addresses[0]] = true
		}
	}
	return out
}

// take returns the changes that are pending. They are written now.
func (t *tracer) take() []*hop.Record {
	if len(t.pending) == 0 {
		return nil
	}
	out := slices.SortedFunc(maps.Values(t.pending), func(a, b *hop.Record) int {
		return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.UID, b.UID))
	})
	clear(t.pending)
	return out
}

// written records changes whose rules were written by a transaction that began at begin. If it failed, the records stay open
// until one succeeds: at most maxTraced, those of the oldest changes.
func (t *tracer) written(changes []*hop.Record, begin time.Time, err error) {
	for i, r := range changes {
		now, isNews := time.Now(), !r.Open
		r.Took[hop.Network], r.Wait[hop.Network] = now.Sub(r.Start), max(begin.Sub(r.Start), 0)
		r.Open, r.Error = err != nil && i < maxTraced, ""
		r.Steps = slices.DeleteFunc(slices.Clone(r.Steps), func(s hop.Step) bool { return s.Name != dnsStep })
		r.Steps = append(r.Steps, hop.Step{Hop: hop.Network, Name: "rules", After: max(begin.Sub(r.Start), 0), Took: now.Sub(begin),
			Failed: err != nil})
		if err != nil {
			r.Error = err.Error() // whoever stores or sends it cuts it and makes it printable
		}
		if !r.Open || isNews {
			t.record(*r)
		}
	}
}

// keep makes changes pending again whose rules could not be written: all with an open record, which has to be ended.
func (t *tracer) keep(changes []*hop.Record) {
	for _, r := range changes {
		if r.Open {
			t.pending[r.UID] = r
		}
	}
}
