// Package tracekind holds the kind of traces, which are computed from the records of package hop when they are asked for.
package tracekind

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/kind"
	"proa.dev/trace"
)

// Source makes traces with what the user of a request may see of them. The caller may modify what it returns.
type Source interface {
	// Trace returns the trace with a name.
	Trace(ctx context.Context, d kind.Server, namespace, name string) (*trace.Trace, error)
	// Bodies returns the trace with a name, with the bodies of requests and answers.
	Bodies(ctx context.Context, d kind.Server, namespace, name string) (*trace.Trace, error)
	// Recent returns the latest traces of a namespace, or of all, without their spans.
	Recent(ctx context.Context, d kind.Server, namespace string) ([]*trace.Trace, error)
	// Version returns a number that changes when traces may have changed; 0 if that is not known.
	Version() uint64
}

// All lists the kinds of this package.
func All(s Source) []*kind.Def { return []*kind.Def{Traces(s), WireTraces(s)} }

// WireTraces are traces with the bodies of requests and answers. Only one at a time can be read.
func WireTraces(s Source) *kind.Def {
	d := kind.Define(kind.Resource[trace.WireTrace]{
		Traits: kind.Traits{
			GroupVersionKind: trace.GroupVersion().WithKind("WireTrace"), Plural: "wiretraces", StorageFolder: "trace.proa.dev/wiretraces",
			Verbs: []string{"get"}, Confidential: true,
		},
		Computed: func(ctx context.Context, d kind.Server, which kind.Selection) ([]*trace.WireTrace, error) {
			t, err := s.Bodies(ctx, d, which.Namespace, which.Name)
			if err != nil {
				return nil, err
			}
			t.ResourceVersion = "" // they cannot be watched
			return []*trace.WireTrace{{Trace: *t}}, nil
		},
	})
	d.JSONOnly = true
	return d
}

// Traces are what happened to objects from the request that changed them to the Pods that serve.
func Traces(s Source) *kind.Def {
	d := kind.Define(kind.Resource[trace.Trace]{
		Traits: kind.Traits{
			GroupVersionKind: trace.GroupVersion().WithKind("Trace"), Plural: "traces", StorageFolder: "trace.proa.dev/traces",
			Verbs: []string{"get", "list", "watch"},
		},
		ComputedVersion: func() uint64 { return s.Version() },
		Computed: func(ctx context.Context, d kind.Server, which kind.Selection) ([]*trace.Trace, error) {
			if which.Name == "" {
				return s.Recent(ctx, d, which.Namespace)
			}
			t, err := s.Trace(ctx, d, which.Namespace, which.Name)
			if err != nil {
				return nil, err
			}
			return []*trace.Trace{t}, nil
		},
		Columns: []kind.Column[trace.Trace]{
			kind.NameColumn[trace.Trace](),
			{Name: "Command", Value: func(t *trace.Trace) any { return t.Command }},
			{Name: "User", Value: func(t *trace.Trace) any { return t.User }},
			{Name: "Started", Value: func(t *trace.Trace) any { return kind.Age(metav1.NewTime(t.Start)) + " ago" }},
			{Name: "Took", Value: func(t *trace.Trace) any { return trace.Seconds(t.Took) }},
			{Name: "State", Value: func(t *trace.Trace) any { return string(t.State) }},
			{Name: "Summary", Wide: true, Value: func(t *trace.Trace) any {
				if t.Stuck != "" {
					return t.Stuck
				}
				return t.Summary
			}},
		},
	})
	d.JSONOnly = true
	return d
}
