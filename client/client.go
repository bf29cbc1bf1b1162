// Package client is hop 1 of 12 for callers in the same process: what a loop has of the cluster. It reads from views
// and writes through the front door, both under its own identity. Package server implements it over the pipeline; an agent
// in another process will implement it over HTTPS.
package client

import (
	"context"
	"iter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// Client is one identity's access to the cluster.
type Client interface {
	// View opens the cache of a resource, which is authorized as list and watch.
	View(ctx context.Context, gr schema.GroupResource) (View, error)
	// Part opens a view of some objects of a resource. Who may not see all Secrets may see the one its Pod names. The view is
	// kept up until ctx ends.
	Part(ctx context.Context, gr schema.GroupResource, scope Scope) (View, error)
	// Get reads an object, or with sub one of its subresources, as it is now: it sees every write that was acknowledged
	// before. Nearly always a View is what is wanted. The object is the caller's.
	Get(ctx context.Context, gr schema.GroupResource, namespace, name, sub string) (kind.Object, error)
	Writer
}

// Writer is the write side of a Client. Objects handed in are private to the call afterwards; those returned are the
// caller's.
type Writer interface {
	Create(ctx context.Context, gr schema.GroupResource, obj kind.Object) (kind.Object, error)
	// Update stores the object, or with sub one of its subresources. If the object carries a resourceVersion and the stored
	// one has another by now, that is a conflict.
	Update(ctx context.Context, gr schema.GroupResource, obj kind.Object, sub string) (kind.Object, error)
	// Act creates a subresource: binding, eviction, token.
	Act(ctx context.Context, gr schema.GroupResource, namespace, name, sub string, body kind.Object) (kind.Object, error)
	Delete(ctx context.Context, gr schema.GroupResource, namespace, name string, options metav1.DeleteOptions) error
	// DeleteAll deletes every object of a resource in a namespace, or only those whose fields have these values.
	DeleteAll(ctx context.Context, gr schema.GroupResource, namespace string, only fields.Set, options metav1.DeleteOptions) error
}

// View is the cache of one resource. Its objects are shared and read-only: copy before changing.
type View interface {
	Get(namespace, name string) (kind.Object, bool)
	// List yields the objects of a namespace, or all, in the order of their keys.
	List(namespace string) iter.Seq[kind.Object]
	// By yields the objects that have a value in an index, in the order of their keys. The first use of an index reads
	// every object; after that it costs what it yields.
	By(index Index, value string) iter.Seq[kind.Object]
	// Events yields the present objects and then every change, until ctx ends.
	Events(ctx context.Context) iter.Seq[Event]
	// Unreadable returns the keys of the stored objects of a namespace, or of all, that cannot be decoded. They are there, and Get, List
	// and Events do not show them.
	Unreadable(namespace string) []string
	// Reach waits until the view holds every change up to a revision; 0 stands for every write that was acknowledged
	// before the call.
	Reach(ctx context.Context, rev int64) error
}

// Scope says which objects of a resource a view shows: those bound to a node, those with a name, those of a namespace, or the one of
// a namespace with a name. Only Pods are bound to nodes.
type Scope struct {
	Node            string
	Namespace, Name string
}

// Event is a change of one object. Deleted objects are yielded in their last state.
type Event struct {
	Object kind.Object
	// Old is the object before the change; nil when it was not there.
	Old     kind.Object
	Deleted bool
	// Gap says that changes were missed, deletions among them. It comes without an object, and the present objects follow.
	Gap bool
	// Rev is the revision of the change.
	Rev int64
}
