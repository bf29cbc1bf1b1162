// Package client is hop 1 of 12: the interface through which controllers, the scheduler and agents use the API. They
// read from views, which are caches, and write through the request pipeline, both under an identity of their own.
// Package server implements the interface for callers in its process, package client/remote implements it over HTTPS.
package client

import (
	"context"
	"iter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// Client is one identity's access to the cluster.
type Client interface {
	// View opens the cache of a resource. The caller must be allowed to list and watch the resource.
	View(ctx context.Context, gr schema.GroupResource) (View, error)
	// Part opens a view of some objects of a resource, for callers that may not see all of them: an agent may read the
	// Secret that its Pod names, but no others. The view is kept up to date until ctx ends.
	Part(ctx context.Context, gr schema.GroupResource, scope Scope) (View, error)
	// Get reads the current state of an object, or of its subresource sub: it sees every write that was acknowledged
	// before the call. It is expensive; a View is nearly always good enough. The caller may change the returned object.
	Get(ctx context.Context, gr schema.GroupResource, namespace, name, sub string) (kind.Object, error)
	Writer
}

// Writer is the write side of a Client. The caller must not use an object after passing it in; objects that are
// returned belong to the caller.
type Writer interface {
	Create(ctx context.Context, gr schema.GroupResource, obj kind.Object) (kind.Object, error)
	// Update replaces an object, or its subresource sub. It fails with a conflict if the object has a resourceVersion
	// that is not the stored one.
	Update(ctx context.Context, gr schema.GroupResource, obj kind.Object, sub string) (kind.Object, error)
	// Act creates a subresource such as binding, eviction or token.
	Act(ctx context.Context, gr schema.GroupResource, namespace, name, sub string, body kind.Object) (kind.Object, error)
	Delete(ctx context.Context, gr schema.GroupResource, namespace, name string, options metav1.DeleteOptions) error
	// DeleteAll deletes the objects of a resource in a namespace whose fields have the values of only; an empty set
	// selects all.
	DeleteAll(ctx context.Context, gr schema.GroupResource, namespace string, only fields.Set, options metav1.DeleteOptions) error
}

// View is the cache of one resource. Its objects are shared and read-only: copy an object before changing it.
type View interface {
	Get(namespace, name string) (kind.Object, bool)
	// List yields the objects of a namespace in the order of their keys; the empty namespace stands for all.
	List(namespace string) iter.Seq[kind.Object]
	// By yields the objects that have a value in an index, in the order of their keys. The first call for an index
	// reads every object of the view; later calls cost as much as they yield.
	By(index Index, value string) iter.Seq[kind.Object]
	// Events yields the present objects and then every change, until ctx ends. Present objects may be yielded again, without Old: after a
	// gap, and when the server has decoded its objects anew.
	Events(ctx context.Context) iter.Seq[Event]
	// Unreadable returns the keys of stored objects that cannot be decoded, in a namespace or, if it is empty, in all.
	// Such objects exist, but Get, List and Events do not return them.
	Unreadable(namespace string) []string
	// Reach waits until the view contains every change up to a revision; 0 stands for every write that was acknowledged
	// before the call.
	Reach(ctx context.Context, rev int64) error
}

// Scope selects the objects that a view of a part of a resource contains: the Pods of a node, the objects with a name,
// those of a namespace, or the one object with a name in a namespace.
type Scope struct {
	Node            string
	Namespace, Name string
}

// Event is a change of one object.
type Event struct {
	// Object is the object after the change; for a deletion, its last state.
	Object kind.Object
	// Old is the object before the change; nil if it did not exist.
	Old     kind.Object
	Deleted bool
	// Gap reports that events were lost, deletions among them. Such an event has no object; events for all present
	// objects follow it.
	Gap bool
	// Rev is the revision of the change.
	Rev int64
	// At is when the view got the event; the same for events that it got together. Zero if that is not known.
	At time.Time
}
