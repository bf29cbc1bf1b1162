package why

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/hop"
	"proa.dev/kinds/lib/gr"
	"proa.dev/why/lookup"
)

const (
	// setAside is the reason of the Event of a controller that no longer reconciles an object, but for a try at long intervals.
	setAside = "SetAside"
	// setAsideFor is for how long such an Event holds: longer than that interval.
	setAsideFor = 15 * time.Minute
)

// addSetAside makes an answer say that a controller has set the object aside.
func (r *reader) addSetAside(ctx context.Context, t Target, a *Answer) {
	namespace := t.Namespace
	if namespace == "" {
		namespace = corev1.NamespaceDefault
	}
	fields := "reason=" + setAside
	if r.AllEvents { // they are read already
		fields = ""
	}
	items, _ := lookup.List[corev1.Event](ctx, r.Reader, gr.Events, namespace, fields)
	for i := range items {
		e := &items[i]
		o := &e.InvolvedObject
		if e.Reason != setAside || o.Kind != t.Kind || o.Name != t.Name || o.Namespace != t.Namespace ||
			r.Now.Sub(e.LastTimestamp.Time) > setAsideFor {
			continue
		}
		a.State, a.Cause, a.Evidence, a.Actions = Stuck, e.Message+".", nil, nil
		a.At(hop.Control).Because(a.Object, "event "+setAside, e.Message, e.LastTimestamp.Time)
		a.Do("ask for less in the spec of %s, or delete it; if it asks for little, report it, since it is an error of the controller",
			t.ref())
		return
	}
}
