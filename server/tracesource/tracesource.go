// Package tracesource makes traces of the records of the server for the users who ask for them. A user sees of a trace what he could
// get himself: of a span about another object only the hop and the times.
package tracesource

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/server/peerrecords"
	"proa.dev/trace"
)

// maxRecent is how many traces a list has at most.
const maxRecent = 100

// Source makes traces.
type Source struct {
	// Records returns the recorder, which may be nil. It is a function because the recorder is made after the kinds.
	Records func() *hop.Recorder
	// Peers are the other servers of the cluster, whose records a trace has too; nil if there are none, or if they are not asked.
	Peers *peerrecords.Peers
	// Limits bound what readers cost; nil for none.
	Limits *Limits
}

// Trace returns the trace with a name.
func (s *Source) Trace(ctx context.Context, d kind.Server, namespace, name string) (*trace.Trace, error) {
	return s.build(ctx, d, namespace, name, false)
}

// Bodies returns the trace with a name, with the bodies of requests and answers about objects that the user may get.
func (s *Source) Bodies(ctx context.Context, d kind.Server, namespace, name string) (*trace.Trace, error) {
	return s.build(ctx, d, namespace, name, true)
}

// build makes the trace with a name, with bodies or without.
func (s *Source) build(ctx context.Context, d kind.Server, namespace, name string, bodies bool) (*trace.Trace, error) {
	object, ok := trace.ParseName(name)
	if !ok {
		return nil, notFound(name, "the name of a trace is RESOURCE[.GROUP]:NAME, as deployments.apps:web")
	}
	object.Namespace = namespace
	reader := newReader(ctx, d)
	objects := slices.DeleteFunc(candidates(object), func(r trace.Ref) bool { return !reader.mayGet(r) })
	if len(objects) == 0 { // whoever may not get the object does not learn whether there is a trace of it
		return nil, forbidden(object, name)
	}
	leave, err := s.Limits.enter(ctx, d.User().GetName())
	if err != nil {
		return nil, err
	}
	defer leave()
	records, missing := s.Peers.Add(ctx, s.records(), objects)
	x := trace.NewIndex(s.Limits.present(records))
	for _, object := range objects {
		t := x.Trace(object, time.Now())
		if t == nil {
			continue
		}
		t.Namespace, t.Unseen = namespace, unseen(missing, t.Start)
		t.Hide(reader.rights())
		if system, err := d.Get(ctx, gr.Namespaces, "", "kube-system"); err == nil {
			t.ClusterUID = system.GetUID()
		}
		if bodies { // those of callers in this process are encoded now, which takes a while
			x.AddBodies(t)
		}
		return t, nil
	}
	if !reader.mayGet(object) { // he may get an object without a namespace that has the name
		return nil, forbidden(object, name)
	}
	why := "the server has no record of a write of it; it keeps those of the latest time only"
	if silent := unseen(missing, time.Now()); len(silent) > 0 {
		why += "; " + trace.NotAnswered + strings.Join(silent, ", ")
	}
	return nil, notFound(name, why)
}

// forbidden returns the error for a user who may not get the object of a trace.
func forbidden(object trace.Ref, name string) error {
	return apierrors.NewForbidden(schema.GroupResource{Group: trace.Group, Resource: "traces"}, name,
		fmt.Errorf("a trace needs the right to get its object, %s %q in the namespace %q", object.Resource, object.Name, object.Namespace))
}

// unseen names the servers whose records are missing from a trace that began at a time.
func unseen(missing []peerrecords.Missing, start time.Time) (out []string) {
	for _, m := range missing {
		if m.Until.IsZero() || start.Before(m.Until) {
			out = append(out, m.Text)
		}
	}
	return out
}

// candidates returns the objects that the name of a trace may stand for: traces of objects without a namespace are in the namespace
// default.
func candidates(object trace.Ref) []trace.Ref {
	if object.Namespace != trace.NoNamespace {
		return []trace.Ref{object}
	}
	without := object
	without.Namespace = ""
	return []trace.Ref{object, without}
}

func notFound(name, why string) error {
	err := apierrors.NewNotFound(schema.GroupResource{Group: trace.Group, Resource: "traces"}, name)
	err.ErrStatus.Message += ": " + why
	return err
}

// Recent returns the latest traces of a namespace, or of all, whose objects the user may get.
func (s *Source) Recent(ctx context.Context, d kind.Server, namespace string) ([]*trace.Trace, error) {
	leave, err := s.Limits.enter(ctx, d.User().GetName())
	if err != nil {
		return nil, err
	}
	defer leave()
	records, missing := s.Peers.AddRecent(ctx, s.records(), namespace, maxRecent)
	x := trace.NewIndex(s.Limits.present(records))
	out := x.Recent(namespace, maxRecent, time.Now(), newReader(ctx, d).rights())
	for _, t := range out {
		t.Unseen = unseen(missing, t.Start)
		t.ResourceVersion += strings.Join(t.Unseen, ",") // it changes with what is in the trace
	}
	if silent := unseen(missing, time.Now()); len(silent) > 0 {
		kind.Warn(d, "traces of other servers are missing or not complete: "+strings.Join(silent, ", "))
	}
	return out, nil
}

// Version returns a number that changes when traces may have changed; 0 if that is not known, because other servers have records too.
// Leases, Events and statuses of nodes change all the time, and are seldom what somebody wants to see.
func (s *Source) Version() uint64 {
	if s.Peers != nil {
		return 0
	}
	return s.Records().Changes() + 1
}

func (s *Source) records() []hop.Record {
	return s.Records().Select(func(*hop.Record) bool { return true })
}
