// Package whysource explains objects for the users who ask the server why they are as they are. It reads what the user could read
// himself, and nothing else.
package whysource

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/kinds/whykind"
	"proa.dev/trace"
	"proa.dev/why"
)

// The bounds of what explanations cost: how long one may take, and how many are made at a time for one user and for all.
const (
	maxTime     = 20 * time.Second
	maxParallel = 4
)

// Source makes explanations.
type Source struct {
	// Def returns the descriptor of a resource; nil if there is none.
	Def func(schema.GroupResource) *kind.Def
	// Trace returns the trace with a name, with what the user of the request may see of it.
	Trace func(ctx context.Context, d kind.Server, namespace, name string) (*trace.Trace, error)
	// LastAttempt returns what the scheduler found when it last tried to place a Pod; nil if it does not know. An error says that the
	// scheduler cannot be asked.
	LastAttempt func(types.UID) (*why.Attempt, error)

	mu   sync.Mutex // guards busy
	busy map[string]bool
}

// begin says that an explanation is made for a user. It fails when one is made for him already, or too many for others. The caller calls
// the returned function when the explanation is made.
func (s *Source) begin(user string) (func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[user] || len(s.busy) >= maxParallel {
		return nil, apierrors.NewTooManyRequests("the server is busy with other explanations; ask again in a second", 1)
	}
	if s.busy == nil {
		s.busy = map[string]bool{}
	}
	s.busy[user] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.busy, user)
	}, nil
}

// ask calls f with an asker that reads with the rights of the user of the request.
func (s *Source) ask(ctx context.Context, d kind.Server, f func(context.Context, *why.Asker) error) error {
	done, err := s.begin(d.User().GetName())
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	err = f(ctx, &why.Asker{Cluster: &reader{source: s, server: d, rights: map[right]bool{}}, Now: time.Now()})
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
	r := &reader{source: s, server: d, rights: map[right]bool{}}
	pod := &corev1.Pod{}
	if err := r.Get(ctx, gr.Pods, namespace, name, pod); err != nil {
		return nil, err
	}
	a, err := s.LastAttempt(pod.UID)
	if err != nil {
		return nil, err
	}
	if a == nil {
		return nil, notFound("schedulingattempts", name,
			"the scheduler has not tried to place the Pod since it was started, or too many others since then")
	}
	r.hideNodes(ctx, a, pod)
	return &whykind.SchedulingAttempt{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Attempt: *a}, nil
}

// Attempts returns the last attempts to place Pods of a namespace, or of all, without their nodes.
func (s *Source) Attempts(ctx context.Context, d kind.Server, namespace string) (out []*whykind.SchedulingAttempt, err error) {
	r := &reader{source: s, server: d, rights: map[right]bool{}}
	if err := r.check(ctx, right{"list", gr.Pods, namespace, ""}); err != nil {
		return nil, err
	}
	pods, err := d.List(ctx, gr.Pods, namespace)
	if pods == nil {
		return nil, err
	}
	for o := range pods {
		a, err := s.LastAttempt(o.GetUID())
		if err != nil {
			return nil, err
		}
		if a != nil {
			a.Nodes, a.LeftOut = nil, 0
			out = append(out, &whykind.SchedulingAttempt{Attempt: *a,
				ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName()}})
		}
	}
	return out, nil
}

// hideNodes takes the names of nodes out that the user may not get, but for those that the Pod itself names.
func (r *reader) hideNodes(ctx context.Context, a *why.Attempt, pod *corev1.Pod) {
	may := func(node string) bool {
		return node == pod.Spec.NodeName || node == pod.Status.NominatedNodeName ||
			r.may(ctx, right{"get", gr.Nodes, "", ""}) || r.may(ctx, right{"get", gr.Nodes, "", node})
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
