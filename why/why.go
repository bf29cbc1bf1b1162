// Package why explains why an object of the cluster is not as its owner wants it: at which of the twelve hops it is stuck, what
// the evidence is, and what to do about it. It only reads, as whoever asks may read, and it never guesses: what it could not see
// it says. Each kind has one file; what is decided there depends only on the objects that were read and on the time.
package why

import (
	"cmp"
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/why/answer"
	"proa.dev/why/lookup"
)

// The words of answers, which whoever reads them needs too.
type (
	State       = answer.State
	Ref         = answer.Ref
	Answer      = answer.Answer
	NodeReason  = answer.NodeReason
	PluginScore = answer.PluginScore
	Attempt     = answer.Attempt
)

// The states of package answer.
const (
	Working = answer.Working
	Waiting = answer.Waiting
	Unknown = answer.Unknown
	Stuck   = answer.Stuck
)

// Target names what somebody asks about. Namespace is empty for what has none.
type Target struct {
	Resource  schema.GroupResource
	Kind      string
	Namespace string
	Name      string
}

func (t Target) ref() Ref { return Ref{Kind: t.Kind, Namespace: t.Namespace, Name: t.Name} }

// Asker explains objects of one cluster.
type Asker struct {
	Cluster lookup.Cluster
	// Now is the time of the question.
	Now time.Time
}

// Explain answers the question about one object. An error means that the object itself could not be read. Of an object that does not
// exist, the answer is why the last request to make it was refused, if that was recorded.
func (k *Asker) Explain(ctx context.Context, t Target) (*Answer, error) {
	r := k.reader()
	a, err := r.explain(ctx, t)
	if apierrors.IsNotFound(err) {
		if a = r.refusedWrite(ctx, t); a != nil {
			return a, nil
		}
		err = cmp.Or(r.Outage(), err) // the object may exist by now, the server cannot know
	}
	if err != nil {
		return nil, err
	}
	r.addDetails(ctx, a)
	r.addOutage(ctx, a)
	a.Unseen = r.unseen()
	return a, nil
}

// explain dispatches by resource.
func (r *reader) explain(ctx context.Context, t Target) (*Answer, error) {
	f := explainers()[t.Resource]
	if f == nil {
		f = (*reader).custom
	}
	a, err := f(r, ctx, t)
	if err != nil {
		return nil, err
	}
	r.addSetAside(ctx, t, a)
	for at := a; at != nil; at = at.Through {
		at.Cause = answer.OneLine(at.Cause) // other people's texts are in it
		if on, known := resourceOf(at.Object.Kind); known {
			at.Resource = on.String()
		}
	}
	a.Resource = t.Resource.String()
	return a, nil
}
