// Package kind describes API resources as data. A Resource is everything the server, the CLI and the
// docs know about one built-in resource; Define turns it into a Def, the type-erased form that the
// pipeline works with. The pipeline knows no kind by name: what differs between kinds is here, in fields.
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

// Scope says whether objects of a kind live in namespaces.
type Scope uint8

// The two scopes.
const (
	Namespaced Scope = iota
	Cluster
)

// Resource describes one built-in resource over its published Go type T. The zero value of every field
// is the common behaviour.
type Resource[T any] struct {
	Group, Version, Kind string
	Plural               string
	Singular             string // empty: the kind in lower case
	Short, Categories    []string
	Scope                Scope
	Verbs                []string // nil: AllVerbs

	// Confidential says that objects hold what only some may read: tokens, the values of Secrets. Their bodies are in no audit log,
	// whatever its policy says, and errors do not quote them.
	Confidential bool
	// Stored is the folder under /registry/ that holds the objects; empty means Plural.
	Stored string
	// StoredAs is the version that stored objects carry; empty means Version. It differs where Kubernetes stores the kind in an older
	// version with the same fields, so that its servers can read what is written here.
	StoredAs string
	// Older are the other versions in which servers of Kubernetes may have stored objects of this kind.
	Older []OlderVersion
	// TTL, in seconds, lets objects expire (events).
	TTL int64

	// Name checks metadata.name, or a generateName prefix; nil means a DNS subdomain.
	Name func(name string, prefix bool) []string
	// LooseMeta lets finalizers go without a domain, and tells what is wrong with the metadata of a new object only
	// when nothing else is (events).
	LooseMeta bool
	// AnyFinalizer lets finalizers go without a domain.
	AnyFinalizer bool
	// Verbatim lets a generateName be the name (IP addresses, whose names have no room for chance).
	Verbatim bool

	// Spec and Status point at the two halves of an object, when it has them. With Status, a create starts
	// with an empty status and an update keeps the stored one; the status subresource keeps the spec.
	Spec, Status func(*T) any
	// KeepStatus lets a create keep the status the client sent (nodes, which register themselves with one).
	KeepStatus bool
	// Generation says that metadata.generation counts the changes of Spec, beginning with 1.
	Generation bool
	// CountFirst counts a change before Prepare may take it back (resource slices).
	CountFirst bool
	// Unnumbered lets a new object begin without a generation, so that the first change makes it 1 (CSI drivers).
	Unnumbered bool
	// Changed names what else moves metadata.generation besides Spec (the annotations of a Deployment, the
	// endpoints of an EndpointSlice). With Generation and neither Spec nor Changed it stays 1.
	Changed func(obj, old *T) bool

	// Default fills in what the client left out. It runs on every decoded object, also those read from
	// the store, and must be idempotent.
	Default func(*T)
	// Prepare drops or sets what a client may not decide. old is nil on create. obj is private to the
	// request; old is a copy too, so parts of it may be moved into obj.
	Prepare func(obj, old *T)
	// PrepareFor runs after Prepare for the kinds that record who asks (certificate signing requests).
	PrepareFor func(u user.Info, obj, old *T)
	// Validate returns every violation below metadata; the metadata itself is checked by the pipeline
	// (create: ValidateObjectMeta with Name; update: ValidateObjectMetaUpdate). old is nil on create. On
	// update it must check both the new object and the change.
	Validate func(obj, old *T) field.ErrorList
	// Allow returns the violations that only the server can see: rights of the user, other objects. It runs when Validate
	// found nothing. old is nil on create.
	Allow func(ctx context.Context, d Door, obj, old *T) field.ErrorList
	// AllowFirst runs Allow, also that of subresources, whatever Validate found, and tells its violations first.
	AllowFirst bool
	// Warn returns the texts of Warning headers. old is nil on create.
	Warn func(obj, old *T) []string

	// Reset lists the fields that server-side apply must not own through the resource itself; nil means status when
	// there is one.
	Reset []string

	// Columns are the cells of a Table row. nil means Name and Created At.
	Columns []Column[T]
	// InList returns what changes the row of an object in a list of all these (the mark of the default storage class).
	InList func(all []*T) func(obj *T, row []any)
	// RowConditions are the conditions of a Table row (Completed pods).
	RowConditions func(*T) []metav1.TableRowCondition
	// Hidden names an annotation that the metadata in a Table row does not show (the template number of a DaemonSet).
	Hidden string
	// Fields are the field selectors beyond metadata.name and metadata.namespace; nil takes one of these two away.
	Fields map[string]func(*T) string
	// FieldError is the text that refuses another one, with a place for it; empty means "field label not supported: %s".
	FieldError string
	// Index names the field by whose value watchers are found quickly (a pod's node).
	Index string
	// Outline makes a copy of an object without its large parts, for objects that are large and seldom read whole: the process then holds
	// the outline and the encoded object, which is decoded when it is read. What loops, indexes and selectors need must be in the outline. It may
	// share with the object what is not large. nil holds objects whole.
	Outline func(*T) *T
	// ForNodes is the form in which agents of nodes read objects that are not their own, in lists and watches; nil shows them
	// whole.
	ForNodes *NodeForm[T]
	Subs     []Sub[T]

	// Begin adds claims and other objects to the transaction of a write. old is nil on create, obj is nil on
	// delete. It may still complete obj (a cluster IP). When a claim is lost to another writer it runs again
	// on a fresh copy.
	Begin func(ctx context.Context, tx Txn, obj, old *T) error
	// Answer makes the kind a question: create computes the answer into obj, nothing is stored.
	Answer func(ctx context.Context, d Door, obj *T) error
	// Act makes the kind an action: create performs it with the object as its body, nothing is stored. As with
	// Sub.Do, a nil answer stands for a Status of success.
	Act func(ctx context.Context, d Door, call *Call) (Object, error)

	// Computed makes the objects when they are asked for; get and list serve them, nothing is stored.
	Computed func(ctx context.Context, d Door) ([]*T, error)
	// Deprecated is the text of the Warning header of every request for the kind.
	Deprecated string

	// Delete describes what is special about removal.
	Delete Deletion[T]

	// CreateOnUpdate lets a PUT to an absent name create the object.
	CreateOnUpdate bool
	// Conditional refuses an update without metadata.resourceVersion.
	Conditional bool
}

// NodeForm is what the agents of nodes see of objects of other nodes: what they need to make the network work, and nothing that
// would tell one node the secrets of another.
type NodeForm[T any] struct {
	// Own is the field selector that keeps a list or watch to the objects of one node, when its value is the name of that node;
	// empty when objects belong to no node. What is kept so is shown whole.
	Own string
	// Fields are the field selectors that a node may use on objects of others. They must be about what Show leaves: by any other
	// a node would find out what it is not shown.
	Fields []string
	// Show returns an object with the fields that nodes need. It may share parts of obj, and must not change it.
	Show func(obj *T) *T
}

// Deletion is what is special about removing an object of a kind.
type Deletion[T any] struct {
	// Grace returns the seconds of grace for an object that is to be deleted with these options; nil, or a
	// result of 0, removes it at once. options.GracePeriodSeconds is nil when the client did not say.
	Grace func(obj *T, options *metav1.DeleteOptions) int64
	// Begin changes the object when its deletion begins and it does not vanish at once.
	Begin func(obj *T)
	// Held says that something besides finalizers and grace keeps a deleted object.
	Held func(obj *T) bool
	// Returns says that the answer to a deletion is the object instead of a Status.
	Returns bool
	// Propagation is the default for dependents; empty means background.
	Propagation metav1.DeletionPropagation
	// Warning is given to a client that deletes without naming a propagation (jobs, whose default surprises).
	Warning string
	// Alone says that the objects have no dependents, so that a propagation policy means nothing (events).
	Alone bool
	// Failed begins the text of a failed precondition, for the kinds that name the resource there; empty: the usual text.
	Failed string
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
	// Confidential is as that of the resource, for the body of the subresource.
	Confidential bool

	// Prepare restores in obj everything this subresource may not change. For a subresource named
	// status, Spec has been restored before, and for the others nothing has. old is a copy.
	Prepare  func(obj, old *T)
	Validate func(obj, old *T) field.ErrorList
	// Allow is as that of the resource.
	Allow func(ctx context.Context, d Door, obj, old *T) field.ErrorList
	// Warn returns the texts of Warning headers; the warnings of the parent are not given here.
	Warn func(obj, old *T) []string
	// Reset lists the fields that server-side apply must not own through this subresource, as
	// paths with dots. For status the default is metadata-less: spec.
	Reset []string

	View   func(parent *T) (Object, error)
	Change func(parent *T, body Object) error

	// Do performs the action on the named parent, which is shared and read-only.
	Do func(ctx context.Context, d Door, call *Call, parent *T) (Object, error)

	// Connect says where a stream leads. It looks for the parent itself, because the name may say more than a name.
	Connect func(ctx context.Context, d Door, c *Connection) (*Target, error)
	// Needs is a verb that a stream needs besides the one of the request: what can be done with a GET need not be harmless.
	Needs string
}

// Connection is a request for a stream.
type Connection struct {
	Namespace string
	// Name is as it stands in the path; that of a proxy may be SCHEME:NAME:PORT.
	Name string
	// Path is what follows the subresource, without a slash before it.
	Path  string
	Query url.Values
	// Split lets one stream of a log be chosen.
	Split bool
}

// Target is where a stream leads: to the agent of a node, or to an address.
type Target struct {
	// Node is the node whose agent serves the stream. Port is another port of the node than the agent's, and goes with Scheme.
	Node *corev1.Node
	Port string
	// Host is an address with its port to connect to instead, and On the name of the node that has it.
	Scheme, Host, On string

	Path  string
	Query url.Values // nil for that of the request

	Shape Shape
	// Needs is a verb that this target needs besides the one of the request.
	Needs string
	// Flush sends what there is at once, and does not wait for more.
	Flush bool
}

// Shape is how a stream is passed on.
type Shape int

// The shapes of streams.
const (
	// Upgrade turns the connection into a stream in both directions.
	Upgrade Shape = iota
	// Text is read to its end.
	Text
	// Proxy passes on whatever HTTP there is, with its links changed so that they lead back here.
	Proxy
)

// Body is the type of a request or response that is not the resource's own.
type Body struct {
	schema.GroupVersionKind
	New func() Object
	// Default fills in what the client left out; nil: nothing.
	Default func(Object)
	// Columns and Row show it in a Table; without them that shows a name and an age.
	Columns []metav1.TableColumnDefinition
	Row     func(Object) []any
	// Echo says that the answer to an action is its body, which then shows who owns its fields.
	Echo bool
	// Options makes, of a request for a stream, the object of this type that admission plugins see; nil for other shapes.
	Options func(c *Connection) runtime.Object
	// Choose makes a request for a stream ask for what changed options say.
	Choose func(c *Connection, options runtime.Object)
}

// Call is the request of an action subresource.
type Call struct {
	Namespace, Name string
	// Body is the decoded and defaulted request body.
	Body   Object
	DryRun bool
}

// AllVerbs are the verbs of an ordinary resource, in the order discovery shows them.
func AllVerbs() []string {
	return []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
}
