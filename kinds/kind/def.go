package kind

import (
	"context"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Def is the descriptor of a resource as the pipeline sees it, without type parameters: the same for built-in kinds and custom ones. It
// is immutable once made. Fields without a comment are those of Resource.
type Def struct {
	Traits
	HasStatus   bool
	Transient   bool // create answers a question and stores nothing
	Terminating bool // the definition of a custom resource is being deleted, and its objects with it

	New     func() Object
	Default func(Object)
	// Prepare readies an object for storing; old is nil on create.
	Prepare func(obj, old Object)
	// PrepareFor, Allow and InList are nil for most kinds; see Resource.
	PrepareFor func(u user.Info, obj, old Object)
	Validate   func(obj, old Object) field.ErrorList
	Allow      func(ctx context.Context, d Server, obj, old Object) field.ErrorList
	Warn       func(obj, old Object) []string
	Begin      func(ctx context.Context, tx Txn, obj, old Object) error
	Answer     func(ctx context.Context, d Server, obj Object) error
	Act        func(ctx context.Context, d Server, call *Call) (Object, error)
	Computed   func(ctx context.Context, d Server, which Selection) ([]Object, error)
	// ComputedVersion is nil for most kinds; see Resource.
	ComputedVersion func() uint64
	Ready           func(Object) bool

	Columns       []metav1.TableColumnDefinition
	Row           func(Object) []any
	InList        func(all []Object) func(obj Object, row []any)
	RowConditions func(Object) []metav1.TableRowCondition
	// Fields are the field selectors by name, metadata.name and metadata.namespace among them; each returns the value of an object.
	Fields   map[string]func(Object) string
	Subs     []*SubDef
	Deletion DeletionDef
	ForNodes *NodeFormDef // nil when nodes see objects of others whole
	Outline  func(Object) Object

	// Hub is the storage version of a resource served in several; nil when this is it.
	Hub     *Def
	ToHub   func(Object) Object
	FromHub func(Object) Object
	// Convert returns an object in another served version of a custom resource, whose versions have no hub; nil for built-in kinds.
	Convert func(ctx context.Context, obj Object, to schema.GroupVersion) (Object, error)

	// The fields below are for custom resources, and have their zero value in built-in kinds.

	// ListKind is the kind of a list; empty means Kind with "List" behind it.
	ListKind string
	// JSONOnly says that objects have no protobuf form, and no Go type by whose rules a strategic merge patch could merge.
	JSONOnly bool
	// Coerce prunes and defaults a decoded object in place, by its schema. With strict it returns the fields that it removed.
	Coerce func(obj Object, strict bool) (unknown []error, err error)
	// Load decodes a stored object and Store encodes one, both without its resourceVersion. Store does not change the object.
	Load  func(value []byte) (Object, error)
	Store func(obj Object) ([]byte, error)
	// LoadAll decodes stored objects as Load does, with one request to a conversion webhook for many of them. It stops when ctx ends.
	LoadAll func(ctx context.Context, values [][]byte) []Loaded
}

// Loaded is a decoded object, or the reason why it cannot be decoded.
type Loaded struct {
	Object Object
	Err    error
}

// ListKindName returns the kind of a list of objects.
func (d *Def) ListKindName() string {
	if d.ListKind != "" {
		return d.ListKind
	}
	return d.Kind + "List"
}

// NodeFormDef is NodeForm without the type parameter.
type NodeFormDef struct {
	Own    string
	Fields []string
	Show   func(Object) Object
}

// SubDef is Sub without the type parameter.
type SubDef struct {
	Name         string
	Verbs        []string
	Body         *Body
	Reset        []string
	Prepare      func(obj, old Object)
	Validate     func(obj, old Object) field.ErrorList
	Allow        func(ctx context.Context, d Server, obj, old Object) field.ErrorList // nil: nothing more to check
	Warn         func(obj, old Object) []string                                       // nil: none
	View         func(parent Object) (Object, error)
	Change       func(parent, body Object) error
	Do           func(ctx context.Context, d Server, call *Call, parent Object) (Object, error)
	Connect      func(ctx context.Context, d Server, c *Connection) (*Target, error)
	RequiredVerb string
	// ReplicasPath is where a Scale finds the number of wanted replicas in its object; nil means spec.replicas.
	ReplicasPath []string
	Confidential bool
}

// DeletionDef is Deletion without the type parameter.
type DeletionDef struct {
	Grace            func(obj Object, options *metav1.DeleteOptions) int64
	Begin            func(obj Object)
	IsHeld           func(obj Object) bool
	Propagation      metav1.DeletionPropagation
	Warning          string
	HasNoDependents  bool
	ReturnsObject    bool
	PreconditionText string
	Check            func(obj Object) error
}

// Storage returns the descriptor of the storage version.
func (d *Def) Storage() *Def {
	if d.Hub != nil {
		return d.Hub
	}
	return d
}

// Resource returns the name of the resource without its version.
func (d *Def) Resource() schema.GroupResource {
	return schema.GroupResource{Group: d.Group, Resource: d.Plural}
}

// Sub returns a subresource; nil if there is none of that name.
func (d *Def) Sub(name string) *SubDef {
	for _, s := range d.Subs {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// IsCustom reports whether a CustomResourceDefinition declares the resource. Its descriptors are replaced whenever the
// definition changes, and no version of it is the hub of the others.
func (d *Def) IsCustom() bool { return d.Load != nil }

// Serves reports whether a verb is served.
func (d *Def) Serves(verb string) bool { return slices.Contains(d.Verbs, verb) }

// Serves reports whether a verb is served.
func (s *SubDef) Serves(verb string) bool { return slices.Contains(s.Verbs, verb) }

// Prefix returns the prefix of the keys under which the resource is stored.
func (d *Def) Prefix() string { return "/registry/" + d.Storage().StorageFolder + "/" }

// Key returns the key under which an object is stored.
func (d *Def) Key(namespace, name string) string {
	if d.Scope == Namespaced {
		return d.Prefix() + namespace + "/" + name
	}
	return d.Prefix() + name
}

// HoldsSecrets reports whether requests for the resource, or for a subresource of it, carry confidential bodies.
func (d *Def) HoldsSecrets(sub string) bool {
	s := d.Sub(sub)
	return d.Confidential || s != nil && s.Confidential
}

// HasType reports whether an object has the Go type of the resource.
func (d *Def) HasType(o Object) bool { return reflect.TypeOf(o) == reflect.TypeOf(d.New()) }

// WithColumnsFor returns the descriptor with the Table columns of an object of another type, such as the Scale of the resource.
func (d *Def) WithColumnsFor(o Object) *Def {
	p := *d
	p.InList, p.RowConditions = nil, nil
	for _, s := range d.Subs {
		if s.Body != nil && s.Body.Row != nil && reflect.TypeOf(s.Body.New()) == reflect.TypeOf(o) {
			p.Columns, p.Row = s.Body.Columns, s.Body.Row
			return &p
		}
	}
	meta := metav1.ObjectMeta{}.SwaggerDoc()
	p.Columns = []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: meta["name"]},
		{Name: "Created At", Type: "date", Description: meta["creationTimestamp"]},
	}
	p.Row = func(o Object) []any { return []any{o.GetName(), createdAt(o)} }
	return &p
}
