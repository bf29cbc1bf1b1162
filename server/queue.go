package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/gr"
	"proa.dev/server/fair"
	"proa.dev/watch"
)

// queue is where a request waits for its seat. Package fair shares the seats out; here it is told what requests are, and
// how they shall be shared out.
type queue struct {
	*fair.Sharing
	state  *State
	caches func() [2]*watch.Cache

	mu   sync.Mutex // guards seen
	seen [2]int64
}

func newQueue(s *State, shared *fair.Sharing) *queue {
	return &queue{Sharing: shared, state: s, caches: sync.OnceValue(func() [2]*watch.Cache {
		return [2]*watch.Cache{s.Cache(s.Def(gr.FlowSchemas)), s.Cache(s.Def(gr.PriorityLevelConfigurations))}
	})}
}

// renew takes over schemas and levels that have changed. Before they are read, what every cluster begins with counts.
func (q *queue) renew() {
	c := q.caches()
	now := [2]int64{c[0].Rev(), c[1].Rev()}
	q.mu.Lock()
	defer q.mu.Unlock()
	if now == q.seen || now[0] == 0 || now[1] == 0 {
		return
	}
	q.seen = now
	q.Set(slices.Collect(seq[*flowcontrolv1.FlowSchema](q.state, gr.FlowSchemas, "")),
		slices.Collect(seq[*flowcontrolv1.PriorityLevelConfiguration](q.state, gr.PriorityLevelConfigurations, "")))
}

// of finds the flow of a request.
func (q *queue) of(a *fair.Ask) fair.Flow {
	q.renew()
	return q.Classify(a)
}

// ofHTTP finds the flow of an HTTP request. One that lasts, and is no watch, belongs to none: it would hold its seat for
// hours.
func (q *queue) ofHTTP(rt *route, path string, who user.Info) fair.Flow {
	if rt.resource && rt.verb != "watch" && lasts(rt.sub) {
		return fair.Flow{}
	}
	return q.of(&fair.Ask{
		User: who, Verb: rt.verb, Path: path, IsResource: rt.resource,
		Group: rt.gvr.Group, Resource: rt.gvr.Resource, Subresource: rt.sub, Namespace: rt.namespace,
	})
}

// lasts says that requests for a subresource may go on for as long as the client wants.
func lasts(sub string) bool {
	switch sub {
	case "attach", "exec", "log", "portforward", "proxy":
		return true
	}
	return false
}

// enter waits for the seats of a request.
func (q *queue) enter(ctx context.Context, r *Request) (leave func(), err error) {
	if r.flow == nil {
		a := fair.Ask{User: r.User, Verb: r.Verb, IsResource: true, Group: r.Def.Group, Resource: r.Def.Plural, Namespace: r.Namespace}
		if r.Sub != nil {
			a.Subresource = r.Sub.Name
		}
		if r.Def.Resource() == gr.Namespaces {
			a.Namespace = r.Name
		}
		flow := q.of(&a)
		r.flow = &flow
	}
	return seated(r.flow.Enter(ctx, q.width(r)))
}

// width is how many seats a request takes: a list of many objects is more work than others.
func (q *queue) width(r *Request) int {
	const perSeat, most = 100, 10
	l := &r.Options.List
	first := r.Verb == "watch" && (l.ResourceVersion == "" || l.ResourceVersion == "0" || l.Initial != nil && *l.Initial)
	if r.Verb != "list" && !first || l.exact("metadata.name") != "" {
		return 1
	}
	n := q.state.Cache(r.Def).Len()
	if r.Verb == "list" && l.Limit > 0 {
		n = int(min(l.Limit, int64(n)))
	}
	return min(most, 1+n/perSeat)
}

// seated makes an answer of what became of the wait.
func seated(leave func(), err error) (func(), error) {
	if errors.Is(err, fair.ErrBusy) {
		err = tooMany()
	}
	return leave, err
}

func tooMany() error { return apierrors.NewTooManyRequests(fair.ErrBusy.Error(), 1) }

// These are the headers of flowcontrolv1 in the form in which net/http keeps them; to find that out takes longer than all of tell.
const (
	levelHeader = "X-Kubernetes-Pf-Prioritylevel-Uid"
	flowHeader  = "X-Kubernetes-Pf-Flowschema-Uid"
)

// tell says in the answer where the request belongs.
func tell(h http.Header, f *fair.Flow) {
	if f.LevelUID != "" {
		h[levelHeader] = []string{string(f.LevelUID)}
		h[flowHeader] = []string{string(f.SchemaUID)}
	}
}
