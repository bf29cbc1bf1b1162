package whysource

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/server/authz"
	"proa.dev/trace"
	"proa.dev/why"
	"proa.dev/why/lookup"
)

// reader reads objects with the rights of the user of a request. It implements lookup.Cluster and lookup.Discoverer. What it returns shares
// memory with the cache of the server and must not be changed.
type reader struct {
	source *Source
	server kind.Server
	rights map[right]bool // the answers so far
}

// reader returns what the user of a request may read, and the context with which it is to be used: its questions about rights wait
// together once for the caches of roles.
func (s *Source) reader(ctx context.Context, d kind.Server) (*reader, context.Context) {
	return &reader{source: s, server: d, rights: map[right]bool{}}, authz.WithOneWait(ctx)
}

var _ lookup.Discoverer = (*reader)(nil) // explanations ask whether it is one

// right is what a user asks for.
type right struct {
	verb            string
	on              schema.GroupResource
	namespace, name string
}

// may tells whether the user has a right.
func (r *reader) may(ctx context.Context, ask right) bool {
	if answer, known := r.rights[ask]; known {
		return answer
	}
	where := ask.namespace
	if ask.on == gr.Namespaces && ask.name != "" {
		where = ask.name // requests for a namespace are made in it
	}
	answer := r.server.ReviewAccess(ctx, kind.AccessReview(r.server.User(), &authorizationv1.ResourceAttributes{
		Verb: ask.verb, Group: ask.on.Group, Version: "*", Resource: ask.on.Resource, Namespace: where, Name: ask.name,
	}))
	r.rights[ask] = answer.Allowed
	return answer.Allowed
}

// check returns an error if the user does not have a right.
func (r *reader) check(ctx context.Context, ask right) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.may(ctx, ask) {
		return nil
	}
	where := ""
	if ask.namespace != "" {
		where = fmt.Sprintf(" in the namespace %q", ask.namespace)
	}
	return apierrors.NewForbidden(ask.on, ask.name,
		fmt.Errorf("the user %q may not %s %s%s", r.server.User().GetName(), ask.verb, ask.on, where))
}

// Get reads an object.
func (r *reader) Get(ctx context.Context, on schema.GroupResource, namespace, name string, into any) error {
	if err := r.check(ctx, right{"get", on, namespace, name}); err != nil {
		return err
	}
	switch out := into.(type) {
	case *why.Attempt:
		a, err := r.source.Attempt(ctx, r.server, namespace, name)
		if err == nil {
			*out = a.Attempt
		}
		return err
	case *trace.Trace:
		t, err := r.source.Trace(ctx, r.server, namespace, name)
		if err == nil {
			*out = *t
		}
		return err
	}
	if _, err := r.def(on); err != nil {
		return err
	}
	o, err := r.server.Get(ctx, on, namespace, name)
	if err != nil {
		return err
	}
	return assign(o, reflect.ValueOf(into).Elem())
}

// def returns the descriptor of a resource that has stored objects.
func (r *reader) def(on schema.GroupResource) (*kind.Def, error) {
	def := r.source.Def(on)
	if def == nil || def.Computed != nil || def.Transient {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: on.String()}, "")
	}
	return def, nil
}

// assign makes a value of an object: a copy of it, or what its JSON form gives if it has another type.
func assign(o kind.Object, into reflect.Value) error {
	if from := reflect.ValueOf(o); from.Type().Elem() == into.Type() {
		into.Set(from.Elem())
		return nil
	}
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into.Addr().Interface())
}

// List reads the objects of a namespace, or of all, into the field Items of a struct. Fields is a field selector with one term, or empty.
func (r *reader) List(ctx context.Context, on schema.GroupResource, namespace, fields string, into any) error {
	def, err := r.def(on) // which resources are served is no secret: discovery tells everybody
	if err != nil {
		return err
	}
	if err := r.check(ctx, right{"list", on, namespace, ""}); err != nil {
		return err
	}
	return r.read(ctx, def, namespace, fields, into)
}

// Discover returns the custom resources that the server serves. It reads their definitions without the right to list these, and returns of
// them what discovery tells, to users who may ask for discovery.
func (r *reader) Discover(ctx context.Context) ([]metav1.APIResource, error) {
	spec := kind.AccessReview(r.server.User(), nil)
	spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: "/apis", Verb: "get"}
	if !r.server.ReviewAccess(ctx, spec).Allowed {
		return nil, apierrors.NewForbidden(gr.CustomResourceDefinitions, "", fmt.Errorf("the user %q may not ask for discovery", spec.User))
	}
	def, err := r.def(gr.CustomResourceDefinitions)
	if err != nil {
		return nil, err
	}
	var all struct{ Items []lookup.Definition }
	err = r.read(ctx, def, "", "", &all)
	return lookup.Established(all.Items), err
}

// read reads objects as List does, whatever the rights of the user are.
func (r *reader) read(ctx context.Context, def *kind.Def, namespace, fields string, into any) error {
	on := def.Resource()
	label, value, selects := strings.Cut(fields, "=")
	field := def.Fields[label]
	if selects && field == nil {
		return fmt.Errorf("%s have no field selector %s", on, label)
	}
	objects, err := r.server.List(ctx, on, namespace)
	if objects == nil {
		return err
	}
	items := reflect.ValueOf(into).Elem().FieldByName("Items")
	for o := range objects {
		if selects && field(o) != value {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		next := reflect.New(items.Type().Elem()).Elem()
		if err := assign(o, next); err != nil {
			return err
		}
		items.Set(reflect.Append(items, next))
	}
	return nil // an object that cannot be decoded is left out
}
