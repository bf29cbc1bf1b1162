// Package whysource explains objects for the users who ask the server why they are as they are. It reads what the user could read
// himself, and nothing else.
package whysource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/kinds/whykind"
	"proa.dev/trace"
	"proa.dev/why"
)

// The bounds of what explanations cost: how long one may take, how many are made at a time for all clients, of which each client has one,
// how many requests wait for others to end, how many of these are of one client, and how long they wait.
const (
	maxTime            = 20 * time.Second
	maxParallel        = 4
	maxWaiting         = 16
	maxWaitingOfClient = 4
	maxWait            = 3 * time.Second
)

// Source makes explanations.
type Source struct {
	// Def returns the descriptor of a resource; nil if there is none.
	Def func(schema.GroupResource) *kind.Def
	// Trace returns the trace with a name, with what the user of the request may see of it.
	Trace func(ctx context.Context, d kind.Server, namespace, name string) (*trace.Trace, error)
	// Bound returns a context in which Trace is called for one explanation, so that all calls together have bounds; nil for none.
	Bound func(context.Context) context.Context
	// LastAttempts returns what the scheduler found when it last tried to place Pods; those are left out that it does not know. Of several
	// the nodes may be left out. An error says that the scheduler cannot be asked.
	LastAttempts func(ctx context.Context, pods []types.UID) (map[types.UID]*why.Attempt, error)

	mu        sync.Mutex               // guards what follows
	busy      map[string]chan struct{} // by client; a channel is closed when the explanation for that client is made
	waiting   int
	waitingOf map[string]int // by client
}

// begin waits until an explanation can be made for a user: until none is being made for the same client, and not too many for others.
// It fails when that takes too long or too many requests wait. The caller calls the returned function when the explanation is made.
func (s *Source) begin(ctx context.Context, user string) (func(), error) {
	errBusy := apierrors.NewTooManyRequests("the server is busy with other explanations; ask again in a second", 1)
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	client := hop.ClientKey(user)
	for {
		done, ended := s.tryBegin(client)
		if done != nil {
			return done, nil
		}
		if ended == nil {
			return nil, errBusy
		}
		select {
		case <-ended:
		case <-ctx.Done():
		}
		s.mu.Lock()
		s.addWaiting(client, -1)
		s.mu.Unlock()
		if ctx.Err() != nil {
			return nil, errBusy
		}
	}
}

// tryBegin begins an explanation for a client, or returns a channel that is closed when it may be tried again; the caller then counts as
// waiting. It returns neither when too many wait already.
func (s *Source) tryBegin(client string) (done func(), ended <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.busy[client]
	if own == nil && len(s.busy) < maxParallel {
		if s.busy == nil {
			s.busy = map[string]chan struct{}{}
		}
		own = make(chan struct{})
		s.busy[client] = own
		return func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.busy, client)
			close(own)
		}, nil
	}
	if s.waiting >= maxWaiting || s.waitingOf[client] >= maxWaitingOfClient {
		return nil, nil
	}
	s.addWaiting(client, 1)
	if own == nil {
		for _, own = range s.busy { // any of them
			break
		}
	}
	return nil, own
}

// addWaiting says that one more request of a client waits, or with -1 one less. The caller holds mu.
func (s *Source) addWaiting(client string, n int) {
	if s.waitingOf == nil {
		s.waitingOf = map[string]int{}
	}
	s.waiting += n
	if s.waitingOf[client] += n; s.waitingOf[client] == 0 {
		delete(s.waitingOf, client)
	}
}

// ask calls f with an asker that reads with the rights of the user of the request.
func (s *Source) ask(ctx context.Context, d kind.Server, f func(context.Context, *why.Asker) error) error {
	done, err := s.begin(ctx, d.User().GetName())
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	if s.Bound != nil {
		ctx = s.Bound(ctx)
	}
	r, ctx := s.reader(ctx, d)
	err = f(ctx, &why.Asker{Cluster: r, Now: time.Now()})
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return apierrors.NewTimeoutError(fmt.Sprintf("the explanation was not complete after %v", maxTime), 0)
	}
	return err
}

// Explain returns the explanation with a name.
func (s *Source) Explain(ctx context.Context, d kind.Server, namespace, name string) (*whykind.Explanation, error) {
	target, err := s.target(namespace, name)
	if err != nil {
		return nil, err
	}
	out := &whykind.Explanation{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	err = s.ask(ctx, d, func(ctx context.Context, asker *why.Asker) error {
		a, err := asker.Explain(ctx, target)
		if err == nil {
			out.Answer = *a
		}
		return err
	})
	return out, err
}

// target returns the object that an explanation is about.
func (s *Source) target(namespace, name string) (why.Target, error) {
	ref, ok := trace.ParseName(name)
	on := schema.GroupResource{Group: ref.Group, Resource: ref.Resource}
	if !ok {
		return why.Target{}, notFound("explanations", name, "the name of an explanation is RESOURCE[.GROUP]:NAME, as deployments.apps:web")
	}
	def := s.Def(on)
	if def == nil {
		return why.Target{}, notFound("explanations", name, "the server has no resource "+on.String())
	}
	t := why.Target{Resource: on, Kind: def.Kind, Name: ref.Name}
	switch {
	case def.Scope == kind.Namespaced:
		t.Namespace = namespace
	case namespace != trace.NoNamespace:
		return why.Target{}, notFound("explanations", name, "explanations of objects without a namespace are in the namespace "+trace.NoNamespace)
	}
	return t, nil
}

func notFound(resource, name, reason string) error {
	err := apierrors.NewNotFound(schema.GroupResource{Group: trace.Group, Resource: resource}, name)
	err.ErrStatus.Message += ": " + reason
	return err
}

// notSeen is the name of the item of a list that says what could not be read.
const notSeen = "not-seen"

// Stuck returns the explanations of everything that is stuck, in a namespace or in all. What could not be read is in an item of its own.
func (s *Source) Stuck(ctx context.Context, d kind.Server, namespace string) (out []*whykind.Explanation, err error) {
	err = s.ask(ctx, d, func(ctx context.Context, asker *why.Asker) error {
		answers, unseen := asker.Stuck(ctx, namespace)
		for _, a := range answers {
			ref := trace.Ref{Namespace: a.Object.Namespace}
			out = append(out, &whykind.Explanation{Answer: *a, ObjectMeta: metav1.ObjectMeta{
				Namespace: trace.NamespaceOf(ref), Name: a.Resource + ":" + a.Object.Name,
			}})
		}
		if len(unseen) > 0 {
			out = append(out, &whykind.Explanation{
				ObjectMeta: metav1.ObjectMeta{Namespace: trace.NamespaceOf(trace.Ref{Namespace: namespace}), Name: notSeen},
				Answer:     why.Answer{State: why.Unknown, Cause: "Not everything could be read: more may be stuck.", Unseen: unseen},
			})
		}
		return nil
	})
	return out, err
}

// Attempt returns the last attempt to place a Pod.
func (s *Source) Attempt(ctx context.Context, d kind.Server, namespace, name string) (*whykind.SchedulingAttempt, error) {
	r, ctx := s.reader(ctx, d)
	pod := &corev1.Pod{}
	if err := r.Get(ctx, gr.Pods, namespace, name, pod); err != nil {
		return nil, err
	}
	all, err := s.LastAttempts(ctx, []types.UID{pod.UID})
	if err != nil {
		return nil, err
	}
	a := all[pod.UID]
	if a == nil {
		return nil, notFound("schedulingattempts", name,
			"the scheduler has not tried to place the Pod since it was started, or too many others since then")
	}
	r.hideNodes(ctx, a, pod)
	return &whykind.SchedulingAttempt{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Attempt: *a}, nil
}

// Attempts returns the last attempts to place Pods of a namespace, or of all, without their nodes.
func (s *Source) Attempts(ctx context.Context, d kind.Server, namespace string) (out []*whykind.SchedulingAttempt, err error) {
	r, ctx := s.reader(ctx, d)
	if err := r.check(ctx, right{"list", gr.Pods, namespace, ""}); err != nil {
		return nil, err
	}
	pods, err := d.List(ctx, gr.Pods, namespace)
	if pods == nil {
		return nil, err
	}
	objects := slices.Collect(pods)
	uids := make([]types.UID, len(objects))
	for i, o := range objects {
		uids[i] = o.GetUID()
	}
	all, err := s.LastAttempts(ctx, uids)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		if a := all[o.GetUID()]; a != nil {
			a.Nodes, a.LeftOut = nil, 0
			if pod, isPod := o.(*corev1.Pod); isPod {
				r.hideNodes(ctx, a, pod)
			}
			out = append(out, &whykind.SchedulingAttempt{Attempt: *a,
				ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName()}})
		}
	}
	return out, nil
}

// maxQuestions is how many questions about rights one request asks before nodes of which it is not known whether the user may get them are
// hidden. An authorizer may be a webhook, which takes its time for each.
const maxQuestions = 1000

// hideNodes takes the names of nodes out that the user may not get, but for those that the Pod itself names.
func (r *reader) hideNodes(ctx context.Context, a *why.Attempt, pod *corev1.Pod) {
	may := func(node string) bool {
		return node == pod.Spec.NodeName || node == pod.Status.NominatedNodeName || r.may(ctx, right{"get", gr.Nodes, "", ""}) ||
			len(r.rights) < maxQuestions && r.may(ctx, right{"get", gr.Nodes, "", node})
	}
	if a.ChosenNode != "" && !may(a.ChosenNode) {
		a.ChosenNode = ""
	}
	for i := range a.Nodes {
		if n := &a.Nodes[i]; !may(n.Node) {
			n.Node, n.Hidden = "", true
		}
	}
}
