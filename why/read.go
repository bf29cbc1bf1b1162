package why

import (
	"context"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/trace"
	"proa.dev/why/answer"
	"proa.dev/why/lookup"
)

// reader answers one question. It remembers the answers about Pods, and the EndpointSlices of Services.
type reader struct {
	*Asker
	*lookup.Reader
	pods map[types.UID]*Answer
	// slices are the names of the EndpointSlices of the Services that were explained.
	slices map[Ref][]string
	// refusals are the messages of refused writes, by the answers that rest on them.
	refusals map[*Answer]string
}

func (k *Asker) reader() *reader {
	return &reader{Asker: k, Reader: lookup.New(k.Cluster), pods: map[types.UID]*Answer{}, slices: map[Ref][]string{},
		refusals: map[*Answer]string{}}
}

// trace reads a trace, and notes which servers did not say what they have recorded.
func (r *reader) trace(ctx context.Context, namespace, name string) (*trace.Trace, error) {
	t, err := lookup.Load[trace.Trace](ctx, r.Reader, traces(), namespace, name)
	if err != nil {
		if _, silent, found := strings.Cut(err.Error(), trace.NotAnswered); found {
			r.CannotSee("what other servers have recorded", errors.New(silent))
		}
		return nil, err
	}
	if len(t.Unseen) > 0 {
		r.CannotSee("what other servers have recorded", errors.New(strings.Join(t.Unseen, ", ")))
	}
	return t, nil
}

// unseen lists what could not be read.
func (r *reader) unseen() []string {
	out := r.Unseen()
	for i := range out {
		out[i] = answer.OneLine(out[i])
	}
	return out
}

// selected returns the items whose labels match a selector.
func selected[T any](items []T, selector labels.Selector, labelsOf func(*T) map[string]string) (out []*T) {
	for i := range items {
		if selector.Matches(labels.Set(labelsOf(&items[i]))) {
			out = append(out, &items[i])
		}
	}
	return out
}

func podLabels(p *corev1.Pod) map[string]string { return p.Labels }

func podRef(p *corev1.Pod) Ref { return Ref{Kind: "Pod", Namespace: p.Namespace, Name: p.Name} }

// ago says how long something has been so.
func (r *reader) ago(t time.Time) string { return answer.Ago(r.Now, t) }
