// Package lookup reads objects for an explanation: each once, and with a note of what could not be read.
package lookup

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/lib/gr"
)

// Cluster reads the objects of a cluster under the identity of the user who asks.
type Cluster interface {
	// Get reads an object into a pointer to its type of the API, or to a map.
	Get(ctx context.Context, r schema.GroupResource, namespace, name string, into any) error
	// List reads the objects of a namespace, or of all namespaces, into a pointer to their list type. Fields is a field selector
	// or empty.
	List(ctx context.Context, r schema.GroupResource, namespace, fields string, into any) error
}

// Reader reads for one question. It remembers what it has read, and what it could not see.
type Reader struct {
	cluster Cluster
	failed  map[string]string
	objects map[string]any // by resource, namespace and name: a pointer to the object, or the error
	lists   map[string]any // the items and indexes of them, or an error
	outage  error          // see Outage
	// AllEvents reads the Events of a namespace at once, for questions about many objects.
	AllEvents bool
}

// New returns a reader that has not read anything.
func New(cluster Cluster) *Reader {
	return &Reader{cluster: cluster, failed: map[string]string{}, objects: map[string]any{}, lists: map[string]any{}}
}

// Keep remembers an object that was read with others; object is a pointer to it.
func (r *Reader) Keep(from schema.GroupResource, namespace, name string, object any) {
	r.objects[cacheKey(from, namespace, name)] = object
}

// Load reads an object, once for each question.
func Load[T any](ctx context.Context, r *Reader, from schema.GroupResource, namespace, name string) (*T, error) {
	key := cacheKey(from, namespace, name)
	switch have := r.objects[key].(type) {
	case *T:
		return have, nil
	case error:
		return nil, have
	}
	out := new(T)
	if err := r.read(func() error { return r.cluster.Get(ctx, from, namespace, name, out) }); err != nil {
		r.objects[key] = err
		return nil, err
	}
	r.objects[key] = out
	return out, nil
}

// CannotSee notes that something could not be read. What does not exist was seen: it is not there.
func (r *Reader) CannotSee(what string, err error) {
	switch {
	case err == nil || apierrors.IsNotFound(err):
	case apierrors.IsForbidden(err):
		r.failed[what] = "you may not read it"
	default:
		r.failed[what] = err.Error()
	}
}

// Unseen lists what could not be read, with the reason.
func (r *Reader) Unseen() (out []string) {
	for what, reason := range r.failed {
		out = append(out, what+": "+reason)
	}
	slices.Sort(out)
	return out
}

// Get reads an object. Found is false when it does not exist or cannot be seen; missing tells the first from the second.
func Get[T any](ctx context.Context, r *Reader, from schema.GroupResource, namespace, name string) (out *T, missing bool) {
	out, err := Load[T](ctx, r, from, namespace, name)
	if err == nil {
		return out, false
	}
	r.CannotSee(from.String()+" "+strings.TrimPrefix(namespace+"/"+name, "/"), err)
	return nil, apierrors.IsNotFound(err)
}

// cacheKey returns the key of an object by its name, or of a list by its field selector.
func cacheKey(from schema.GroupResource, namespace, rest string) string {
	return from.String() + "|" + namespace + "|" + rest
}

// List reads the objects of a namespace, once for each question. Seen is false when that was not possible.
func List[T any](ctx context.Context, r *Reader, from schema.GroupResource, namespace, fields string) (items []T, seen bool) {
	items, err := TryList[T](ctx, r, from, namespace, fields)
	where := "of all namespaces"
	if namespace != "" {
		where = "of namespace " + namespace
	}
	r.CannotSee(from.String()+" "+where, err)
	return items, err == nil
}

// TryList reads as List does, and leaves it to the caller to note what could not be read.
func TryList[T any](ctx context.Context, r *Reader, from schema.GroupResource, namespace, fields string) ([]T, error) {
	key := cacheKey(from, namespace, fields)
	switch have := r.lists[key].(type) {
	case []T:
		return have, nil
	case error:
		return nil, have
	}
	if all, ok := r.lists[cacheKey(from, "", "")].([]T); ok && fields == "" {
		return byNamespace(r, from, all)[namespace], nil
	}
	var out struct {
		Items []T `json:"items"`
	}
	if err := r.read(func() error { return r.cluster.List(ctx, from, namespace, fields, &out) }); err != nil {
		r.lists[key] = err
		return nil, err
	}
	r.lists[key] = out.Items
	return out.Items, nil
}

// byNamespace groups the objects of all namespaces.
func byNamespace[T any](r *Reader, from schema.GroupResource, all []T) map[string][]T {
	key := from.String() + " by namespace"
	if have, ok := r.lists[key].(map[string][]T); ok {
		return have
	}
	out := map[string][]T{}
	for i := range all {
		if o, ok := any(&all[i]).(metav1.Object); ok {
			out[o.GetNamespace()] = append(out[o.GetNamespace()], all[i])
		}
	}
	r.lists[key] = out
	return out
}

// Owned reads the objects of a namespace that the owner controls.
func Owned[T any](ctx context.Context, r *Reader, from schema.GroupResource, namespace string, owner types.UID) (out []*T, seen bool) {
	items, seen := List[T](ctx, r, from, namespace, "")
	key := from.String() + " of " + namespace + " by owner"
	owned, ok := r.lists[key].(map[types.UID][]*T)
	if !ok {
		owned = map[types.UID][]*T{}
		for i := range items {
			if o, ok := any(&items[i]).(metav1.Object); ok {
				if ref := metav1.GetControllerOfNoCopy(o); ref != nil {
					owned[ref.UID] = append(owned[ref.UID], &items[i])
				}
			}
		}
		r.lists[key] = owned
	}
	return slices.Clone(owned[owner]), seen
}

// Event is the part of an Event that explanations use.
type Event struct {
	Type, Reason, Message, Source string
	FieldPath                     string // the part of the object, such as spec.containers{web}
	Count                         int32
	Time                          time.Time
}

// Events reads the Events about an object, the latest first.
func (r *Reader) Events(ctx context.Context, namespace string, uid types.UID) (out []Event) {
	fields := "involvedObject.uid=" + string(uid)
	if r.AllEvents {
		fields = ""
	}
	key := "events by object of " + cacheKey(gr.Events, namespace, fields)
	about, ok := r.lists[key].(map[types.UID][]*corev1.Event)
	if !ok {
		about = map[types.UID][]*corev1.Event{}
		items, _ := List[corev1.Event](ctx, r, gr.Events, namespace, fields)
		for i := range items {
			about[items[i].InvolvedObject.UID] = append(about[items[i].InvolvedObject.UID], &items[i])
		}
		r.lists[key] = about
	}
	for _, e := range about[uid] {
		at, count := e.LastTimestamp.Time, e.Count
		if e.Series != nil {
			at, count = e.Series.LastObservedTime.Time, e.Series.Count
		}
		if at.IsZero() {
			at = e.EventTime.Time
		}
		if at.IsZero() {
			at = e.CreationTimestamp.Time
		}
		out = append(out, Event{Type: e.Type, FieldPath: e.InvolvedObject.FieldPath, Reason: e.Reason, Message: e.Message, Count: count,
			Time:   at,
			Source: cmp.Or(e.ReportingController, e.Source.Component)})
	}
	slices.SortStableFunc(out, func(a, b Event) int { return b.Time.Compare(a.Time) })
	return out
}

// Latest returns the newest of events with one of the reasons.
func Latest(events []Event, reasons ...string) *Event {
	for i := range events {
		if slices.Contains(reasons, events[i].Reason) {
			return &events[i]
		}
	}
	return nil
}

// IsAbout tells whether an Event can be about a container: it names no part of the Pod, or this one.
func (e *Event) IsAbout(container string) bool {
	return e.FieldPath == "" || strings.HasSuffix(e.FieldPath, "{"+container+"}")
}
