// Package client is hop 1 of 12 for callers in the same process: what a loop has of the cluster. It reads from views
// and writes through the front door, both under its own identity. Package server implements it over the pipeline; an agent
// in another process will implement it over HTTPS.
package client

import (
	"context"
	"iter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// Client is one identity's access to the cluster.
type Client interface {
	// View opens the cache of a resource, which is authorized as list and watch.
	View(ctx context.Context, gr schema.GroupResource) (View, error)
	Writer
}

// Writer is the write side of a Client. Objects handed in are private to the call afterwards; those returned are the
// caller's.
type Writer interface {
	Create(ctx context.Context, gr schema.GroupResource, obj kind.Object) (kind.Object, error)
	// Update stores the object, or with sub one of its subresources.
	Update(ctx context.Context, gr schema.GroupResource, obj kind.Object, sub string) (kind.Object, error)
	Delete(ctx context.Context, gr schema.GroupResource, namespace, name string, options metav1.DeleteOptions) error
	// DeleteAll deletes every object of a resource in a namespace.
	DeleteAll(ctx context.Context, gr schema.GroupResource, namespace string, options metav1.DeleteOptions) error
}

// View is the cache of one resource. Its objects are shared and read-only: copy before changing.
type View interface {
	Get(namespace, name string) (kind.Object, bool)
	List(namespace string) iter.Seq[kind.Object]
	// Events yields the present objects and then every change, until ctx ends. After a gap the present objects
	// are yielded again; a loop that is level-triggered does not mind.
	Events(ctx context.Context) iter.Seq[Event]
}

// Event is a change of one object. Deleted objects are yielded in their last state.
type Event struct {
	Object  kind.Object
	Deleted bool
}
