// Package whykind holds the kinds by which the API explains things: why an object is as it is, and what the scheduler found about each
// node. Both are computed when they are asked for.
package whykind

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa.dev/kinds/kind"
	"proa.dev/trace"
	"proa.dev/why"
	"proa.dev/why/answer"
)

// Explanation is the answer to the question why an object is as it is. Its name is that of the object behind its resource, as in
// "deployments.apps:web". Explanations of objects without a namespace are in the namespace default.
type Explanation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	why.Answer        `json:",inline"`
}

// ExplanationList is a list of explanations.
type ExplanationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Explanation `json:"items"`
}

// SchedulingAttempt is what the scheduler found when it last tried to place the Pod of the same name.
type SchedulingAttempt struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	why.Attempt       `json:",inline"`
}

// SchedulingAttemptList is a list of attempts.
type SchedulingAttemptList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SchedulingAttempt `json:"items"`
}

// Source explains with what the user of a request may see. The caller may modify what it returns.
type Source interface {
	// Explain returns the explanation with a name.
	Explain(ctx context.Context, d kind.Server, namespace, name string) (*Explanation, error)
	// Stuck returns the explanations of everything that is stuck in a namespace, or in all.
	Stuck(ctx context.Context, d kind.Server, namespace string) ([]*Explanation, error)
	// Attempt returns the last attempt to place a Pod.
	Attempt(ctx context.Context, d kind.Server, namespace, name string) (*SchedulingAttempt, error)
	// Attempts returns the last attempts to place Pods of a namespace, or of all, without their nodes.
	Attempts(ctx context.Context, d kind.Server, namespace string) ([]*SchedulingAttempt, error)
}

// All lists the kinds of this package.
func All(s Source) []*kind.Def { return []*kind.Def{Explanations(s), SchedulingAttempts(s)} }

// Explanations say why objects are as they are. A list has those of everything that is stuck.
func Explanations(s Source) *kind.Def {
	d := kind.Define(kind.Resource[Explanation]{
		Traits: kind.Traits{
			GroupVersionKind: trace.GroupVersion().WithKind("Explanation"), Plural: "explanations",
			StorageFolder: "trace.proa.dev/explanations", Verbs: []string{"get", "list"},
		},
		Computed: func(ctx context.Context, d kind.Server, which kind.Selection) ([]*Explanation, error) {
			if which.Name == "" {
				return s.Stuck(ctx, d, which.Namespace)
			}
			return one(s.Explain(ctx, d, which.Namespace, which.Name))
		},
		Columns: []kind.Column[Explanation]{
			kind.NameColumn[Explanation](),
			{Name: "State", Value: func(e *Explanation) any { return string(e.State) }},
			{Name: "Hop", Value: func(e *Explanation) any { return e.HopName }},
			{Name: "Cause", Value: func(e *Explanation) any { return e.Cause }},
		},
	})
	d.JSONOnly = true
	return d
}

// SchedulingAttempts are what the scheduler found when it last tried to place Pods.
func SchedulingAttempts(s Source) *kind.Def {
	d := kind.Define(kind.Resource[SchedulingAttempt]{
		Traits: kind.Traits{
			GroupVersionKind: trace.GroupVersion().WithKind("SchedulingAttempt"), Plural: "schedulingattempts",
			StorageFolder: "trace.proa.dev/schedulingattempts", Verbs: []string{"get", "list"},
		},
		Computed: func(ctx context.Context, d kind.Server, which kind.Selection) ([]*SchedulingAttempt, error) {
			if which.Name == "" {
				return s.Attempts(ctx, d, which.Namespace)
			}
			return one(s.Attempt(ctx, d, which.Namespace, which.Name))
		},
		Columns: []kind.Column[SchedulingAttempt]{
			kind.NameColumn[SchedulingAttempt](),
			{Name: "Attempt", Type: "integer", Value: func(a *SchedulingAttempt) any { return int64(a.Number) }},
			{Name: "Node", Value: func(a *SchedulingAttempt) any { return a.ChosenNode }},
			{Name: "Suitable", Type: "integer", Value: func(a *SchedulingAttempt) any { return int64(a.Feasible) }},
			{Name: "Nodes", Type: "integer", Value: func(a *SchedulingAttempt) any { return int64(a.Total) }},
			{Name: "At", Type: "date", Value: func(a *SchedulingAttempt) any { return a.Time.UTC().Format(time.RFC3339) }},
			{Name: "Message", Wide: true, Value: func(a *SchedulingAttempt) any { return a.Message }},
		},
	})
	d.JSONOnly = true
	return d
}

func one[T any](o *T, err error) ([]*T, error) {
	if err != nil {
		return nil, err
	}
	return []*T{o}, nil
}

// AddToScheme adds the types of this package to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(trace.GroupVersion(), &Explanation{}, &ExplanationList{}, &SchedulingAttempt{}, &SchedulingAttemptList{})
	return nil
}

// DeepCopyObject returns a copy.
func (e *Explanation) DeepCopyObject() runtime.Object {
	out := *e
	e.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Answer = *e.Answer.DeepCopy()
	return &out
}

// DeepCopyObject returns a copy.
func (l *ExplanationList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = slices.Clone(l.Items)
	for i := range out.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*Explanation)
	}
	return &out
}

// DeepCopyObject returns a copy.
func (a *SchedulingAttempt) DeepCopyObject() runtime.Object {
	out := *a
	a.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Nodes = answer.CopyNodes(a.Nodes)
	return &out
}

// DeepCopyObject returns a copy.
func (l *SchedulingAttemptList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = slices.Clone(l.Items)
	for i := range out.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*SchedulingAttempt)
	}
	return &out
}
