// Package kind describes API resources as data. A Resource is all that the server, the CLI and the docs know about one built-in
// resource; Define turns it into a Def, the descriptor without type parameters that the pipeline works with. The pipeline knows no kind
// by name: what differs between kinds is here, in fields.
package kind

import (
	"context"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Object is an API object with metadata.
type Object interface {
	runtime.Object
	metav1.Object
}

// Scope tells whether objects of a kind live in namespaces.
type Scope uint8

// The two scopes.
const (
	Namespaced Scope = iota
	Cluster
)

// Traits are what the server knows about a resource that does not depend on the Go type of its objects. The zero value of every field is
// the common behaviour.
type Traits struct {
	schema.GroupVersionKind
	Plural            string
	Singular          string // empty: the kind in lower case
	Short, Categories []string
	Scope             Scope
	Verbs             []string // nil: AllVerbs

	// Confidential says that objects hold what only some users may read: tokens, the values of Secrets. The audit log never holds their
	// bodies, whatever its policy says, and errors do not quote them.
	Confidential bool
	// StorageFolder is the folder under /registry/ that holds the objects; empty means Plural.
	StorageFolder string
	// StorageVersion is the storage version; empty means Version. It differs where Kubernetes stores the kind in an
	// older version with the same fields, so that its servers can read what this one writes.
	StorageVersion string
	// Older are the other versions in which servers of Kubernetes may have stored objects of this kind.
	Older []OlderVersion
	// TTL is the number of seconds after which objects expire (events); 0 means never.
	TTL int64

	// Generation says that metadata.generation counts the changes of the spec, beginning with 1.
	Generation bool
	// CreateOnUpdate lets a PUT to an absent name create the object.
	CreateOnUpdate bool
	// RequiresResourceVersion refuses an update without metadata.resourceVersion.
	RequiresResourceVersion bool
	// NoNameSuffix takes a generateName for the name, without a random suffix (IP addresses).
	NoNameSuffix bool
	// AllowFirst runs Allow, also that of subresources, whatever Validate found, and reports its violations first.
	AllowFirst bool
	// Deprecated is the text of the Warning header of every request for the kind.
	Deprecated string
	// Reset lists the fields that server-side apply must not own through the resource itself; nil means status when
	// there is one.
	Reset []string

	// HiddenAnnotation names an annotation that the metadata in a Table row does not show (the template generation of a DaemonSet).
	HiddenAnnotation string
	// FieldError is the error for an unknown field selector, with a verb for its name; empty means "field label not supported: %s".
	FieldError string
	// IndexField names the field selector by whose value the cache finds watchers quickly (the node of a pod).
	IndexField string
}

// Resource describes one built-in resource over its published Go type T. The zero value of every field is the common behaviour.
type Resource[T any] struct {
	Traits

	// Name validates metadata.name, or a generateName prefix; nil means a DNS subdomain.
	Name func(name string, prefix bool) []string
	// LooseMeta allows finalizers without a domain, and reports errors in the metadata of a new object only if there are no others
	// (events).
	LooseMeta bool
	// AnyFinalizer allows finalizers without a domain.
	AnyFinalizer bool

	// Spec and Status return pointers to the two halves of an object, when it has them. With Status, a create starts
	// with an empty status and an update keeps the stored one; the status subresource keeps the spec.
	Spec, Status func(*T) any
	// KeepStatus lets a create keep the status the client sent (nodes, which register themselves with one).
	KeepStatus bool
	// CountFirst compares for metadata.generation before Prepare, which may revert the change (resource slices).
	CountFirst bool
	// Unnumbered starts a new object without a generation, so that the first change makes it 1 (CSI drivers).
	Unnumbered bool
	// Changed reports changes besides those of Spec that increment metadata.generation (the annotations of a Deployment, the
	// endpoints of an EndpointSlice). With Generation and neither Spec nor Changed it stays 1.
	Changed func(obj, old *T) bool

	// Default fills in what the client left out. It runs on every decoded object, also those read from
	// the store, and must be idempotent.
	Default func(*T)
	// Prepare drops or sets what a client may not decide. old is nil on create. obj is private to the
	// request; old is a copy too, so parts of it may be moved into obj.
	Prepare func(obj, old *T)
	// PrepareFor runs after Prepare for the kinds that record the user of the request (certificate signing requests).
	PrepareFor func(u user.Info, obj, old *T)
	// Validate returns every violation below metadata; the pipeline validates the metadata itself
	// (create: ValidateObjectMeta with Name; update: ValidateObjectMetaUpdate). old is nil on create. On
	// update it must check both the new object and the change.
	Validate func(obj, old *T) field.ErrorList
	// Allow returns the violations that only the server can see: permissions of the user, other objects. It runs when Validate
	// found nothing. old is nil on create.
	Allow func(ctx context.Context, d Server, obj, old *T) field.ErrorList
	// Warn returns the texts of Warning headers. old is nil on create.
	Warn func(obj, old *T) []string

	// Columns are the cells of a Table row. nil means Name and Created At.
	Columns []Column[T]
	// InList returns a function that changes the row of an object in a list of all these (the mark of the default storage class).
	InList func(all []*T) func(obj *T, row []any)
	// RowConditions are the conditions of a Table row (Completed pods).
	RowConditions func(*T) []metav1.TableRowCondition
	// Fields are the field selectors beyond metadata.name and metadata.namespace; a nil function removes one of these two.
	Fields map[string]func(*T) string
	// Outline returns a copy of an object without its large parts, for objects that are large and seldom read whole: the cache then holds
	// the outline and the encoded object, which is decoded when it is read. What controllers, indexes and selectors need must be in the
	// outline. It may share with the object what is not large. With nil the cache holds whole objects.
	Outline func(*T) *T
	// ForNodes is the form in which agents of nodes read objects that are not their own, in lists and watches; nil shows them
	// whole.
	ForNodes *NodeForm[T]
	Subs     []Sub[T]

	// Begin adds claims and other objects to the transaction of a write. old is nil on create, obj is nil on
	// delete. It may still complete obj (a cluster IP). When another writer takes a claim first, it runs again
	// on a new copy.
	Begin func(ctx context.Context, tx Txn, obj, old *T) error
	// Answer makes the kind a review (SubjectAccessReview): create computes the answer into obj, nothing is stored.
	Answer func(ctx context.Context, d Server, obj *T) error
	// Act makes the kind an action: create performs it with the object as its body, nothing is stored. As with
	// Sub.Do, a nil answer stands for a Status of success.
	Act func(ctx context.Context, d Server, call *Call) (Object, error)
	// Ready tells whether an object does what it is for, as a Pod does that is ready. The record of a write (package hop) says so; nil for
	// kinds of which it cannot be told.
	Ready func(obj *T) bool
	// Computed returns the objects that get and list serve; nothing is stored. It may return more than are selected, but need not
	// compute them.
	Computed func(ctx context.Context, d Server, which Selection) ([]*T, error)
	// ComputedVersion returns a number that changes when Computed may return something else, so that watches need not compute the objects
	// to find out; 0 when that is not known. With the verb watch, the objects of Computed have a resourceVersion, any text that changes
	// with what is in them.
	ComputedVersion func() uint64

	// Delete describes what is special about removal.
	Delete Deletion[T]
}

// Selection says which objects of a kind that is computed a request asks for. An empty name stands for all of the namespace, an empty
// namespace for all namespaces.
type Selection struct{ Namespace, Name string }

// NodeForm is the reduced form in which agents of nodes see objects of other nodes: what the network of the cluster needs, and nothing that
// would tell one node the secrets of another.
type NodeForm[T any] struct {
	// Own is the field selector that restricts a list or watch to the objects of one node, when its value is the name of that node;
	// empty when objects belong to no node. A node sees its own objects whole.
	Own string
	// Fields are the field selectors that a node may use on objects of others. They must be about fields that Show leaves: by any other
	// a node could find out what Show hides.
	Fields []string
	// Show returns an object with the fields that nodes need. It may share parts of obj, and must not change it.
	Show func(obj *T) *T
}

// MetaForNodes returns the metadata that nodes see of objects of other nodes: identity, labels, and the times of creation and deletion.
func MetaForNodes(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, Labels: m.Labels,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
		DeletionGracePeriodSeconds: m.DeletionGracePeriodSeconds,
	}
}

// Deletion is what is special about removing an object of a kind.
type Deletion[T any] struct {
	// Grace returns the grace period in seconds for an object that is deleted with these options; nil, or a
	// result of 0, removes it at once. options.GracePeriodSeconds is nil when the client did not set it.
	Grace func(obj *T, options *metav1.DeleteOptions) int64
	// Begin changes the object when its deletion begins and it is not removed at once.
	Begin func(obj *T)
	// IsHeld reports whether something besides finalizers and the grace period keeps a deleted object.
	IsHeld func(obj *T) bool
	// ReturnsObject says that the answer to a deletion is the object instead of a Status.
	ReturnsObject bool
	// Propagation is the default propagation policy for dependents; empty means background.
	Propagation metav1.DeletionPropagation
	// Warning is the Warning header for a client that deletes without a propagation policy (jobs, whose default is unusual).
	Warning string
	// HasNoDependents says that the objects have no dependents, so that a propagation policy has no effect (events).
	HasNoDependents bool
	// PreconditionText begins the error text of a failed precondition, for the kinds that name the resource there; empty: the usual text.
	PreconditionText string
	// Check may refuse the deletion (the default ServiceCIDR, mandatory flow schemas, kube-system).
	Check func(obj *T) error
}

// Column is one cell of a Table row.
type Column[T any] struct {
	Name        string // empty: the cell has no heading (the age of an IP address)
	Type        string // empty: string
	Format      string
	Description string
	Wide        bool
	Value       func(*T) any
}

// Sub is a subresource. Exactly one of its four shapes is used:
//
//   - a part of the object (status, approval, finalize, ephemeralcontainers, resize): Prepare and Validate;
//   - a projection (scale): Body, View and Change;
//   - an action (binding, eviction, token): Body and Do;
//   - a stream (log, exec, attach, portforward, proxy): Connect.
type Sub[T any] struct {
	Name  string
	Verbs []string // nil: get, patch, update; for an action: create; for a stream: create, get

	// Body is the type of the request body when it is not the parent's.
	Body *Body
	// Confidential is Traits.Confidential for the body of the subresource.
	Confidential bool

	// Prepare restores in obj all that this subresource may not change. For a subresource named
	// status, Spec has been restored before. old is a copy.
	Prepare  func(obj, old *T)
	Validate func(obj, old *T) field.ErrorList
	// Allow is Resource.Allow for the subresource.
	Allow func(ctx context.Context, d Server, obj, old *T) field.ErrorList
	// Warn returns the texts of Warning headers; Resource.Warn does not run for a subresource.
	Warn func(obj, old *T) []string
	// Reset lists the fields that server-side apply must not own through this subresource, as
	// paths with dots. For status the default is spec.
	Reset []string

	View   func(parent *T) (Object, error)
	Change func(parent *T, body Object) error

	// Do performs the action on the named parent, which is shared and read-only.
	Do func(ctx context.Context, d Server, call *Call, parent *T) (Object, error)

	// Connect returns where a stream leads. It gets the parent itself, because the name in the path may include a scheme and a port.
	Connect func(ctx context.Context, d Server, c *Connection) (*Target, error)
	// RequiredVerb is a verb that the user must be allowed besides the one of the request: an exec, which can do harm, may come as a GET.
	RequiredVerb string
}

// Connection is a request for a stream.
type Connection struct {
	Namespace string
	// Name is the name in the path; for a proxy it may be SCHEME:NAME:PORT.
	Name string
	// Path is what follows the subresource, without a slash before it.
	Path  string
	Query url.Values
	// Split says that the request may select stdout or stderr of a log.
	Split bool
}

// Target is where a stream leads: to the agent of a node, or to an address.
type Target struct {
	// Node is the node whose agent serves the stream. Port is another port of the node than the agent's, and goes with Scheme.
	Node *corev1.Node
	Port string
	// Host is an address with its port to connect to instead, and On the name of the node that has it.
	Scheme, Host, NodeName string

	Path  string
	Query url.Values // nil: the query of the request

	Shape Shape
	// RequiredVerb is a verb that the user must be allowed for this target besides the one of the request.
	RequiredVerb string
	// Flush sends every part of the response to the client at once.
	Flush bool
}

// Shape is how a stream is passed on.
type Shape int

// The shapes of streams.
const (
	// Upgrade turns the connection into a stream in both directions.
	Upgrade Shape = iota
	// Text is a response body that is copied to its end.
	Text
	// Proxy is a reverse proxy for any HTTP request, with links in the response rewritten so that they lead through this server.
	Proxy
)

// Body is the type of a request or response that is not the resource's own.
type Body struct {
	schema.GroupVersionKind
	New func() Object
	// Default fills in what the client left out; nil: nothing.
	Default func(Object)
	// Columns and Row are its Table; without them a Table shows name and age.
	Columns []metav1.TableColumnDefinition
	Row     func(Object) []any
	// Echo says that the answer to an action is its body, which then shows managedFields.
	Echo bool
	// Options returns the options object of a request for a stream, which admission plugins see; nil for other shapes.
	Options func(c *Connection) runtime.Object
	// Choose writes options that admission plugins have changed back into the request for a stream.
	Choose func(c *Connection, options runtime.Object)
}

// Call is the request of an action subresource.
type Call struct {
	Namespace, Name string
	// Body is the decoded and defaulted request body.
	Body   Object
	DryRun bool
}

// AllVerbs returns the verbs of an ordinary resource, in the order discovery shows them.
func AllVerbs() []string {
	return []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
}
