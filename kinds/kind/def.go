package kind

import (
	"context"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Def is a resource as the pipeline sees it: the same for built-in kinds and custom ones. It is
// immutable once made.
type Def struct {
	schema.GroupVersionKind
	Plural, Singular  string
	Short, Categories []string
	Scope             Scope
	Verbs             []string
	Stored            string
	StoredAs          string
	Older             []OlderVersion
	TTL               int64

	CreateOnUpdate, Conditional bool
	Generation, HasStatus       bool
	Asked                       bool // create answers a question and stores nothing
	Confidential                bool // see Resource, and HoldsSecrets
	Terminating                 bool // the definition of a custom resource is being deleted, and its objects with it

	New     func() Object
	Default func(Object)
	// Prepare readies an object for storing; old is nil on create.
	Prepare func(obj, old Object)
	// PrepareFor, Allow and InList are nil for most kinds; see Resource.
	PrepareFor func(u user.Info, obj, old Object)
	Validate   func(obj, old Object) field.ErrorList
	Allow      func(ctx context.Context, d Door, obj, old Object) field.ErrorList
	Reset      []string
	Warn       func(obj, old Object) []string
	Begin      func(ctx context.Context, tx Txn, obj, old Object) error
	Answer     func(ctx context.Context, d Door, obj Object) error
	Act        func(ctx context.Context, d Door, call *Call) (Object, error)
	// Computed, when set, makes the objects that get and list serve; nothing is stored.
	Computed   func(ctx context.Context, d Door) ([]Object, error)
	Deprecated string // a warning that every request for the kind earns

	Columns       []metav1.TableColumnDefinition
	Row           func(Object) []any
	InList        func(all []Object) func(obj Object, row []any)
	RowConditions func(Object) []metav1.TableRowCondition
	// Fields returns the value of a selectable field. FieldNames lists them.
	Fields     map[string]func(Object) string
	Subs       []*SubDef
	Deletion   DeletionDef
	Index      string
	FieldError string // refuses a field that cannot be selected by; empty when the kind names no fields of its own
	Hidden     string
	Verbatim   bool
	AllowFirst bool
	ForNodes   *NodeFormDef // nil when nodes see objects of others whole
	Outline    func(Object) Object

	// Hub is the stored version of a resource served in several; nil when this is it.
	Hub     *Def
	ToHub   func(Object) Object
	FromHub func(Object) Object
	// Convert returns an object in another served version of a custom resource, whose versions have no hub; nil for built-in kinds.
	Convert func(ctx context.Context, obj Object, to schema.GroupVersion) (Object, error)

	// What follows is that of custom resources, and has its zero value in built-in kinds.

	// ListKind is the kind of a list; empty means Kind with "List" behind it.
	ListKind string
	// JSONOnly says that objects have no protobuf form, and no Go type by whose rules a strategic merge patch could merge.
	JSONOnly bool
	// Coerce brings a decoded object into the form of its schema, in its place. With strict it returns the fields that it took away.
	Coerce func(obj Object, strict bool) (unknown []error, err error)
	// Load decodes a stored object and Store encodes one, both without its resourceVersion. The object is not changed.
	Load  func(value []byte) (Object, error)
	Store func(obj Object) ([]byte, error)
}

// ListKindName is the kind of a list of objects.
func (d *Def) ListKindName() string {
	if d.ListKind != "" {
		return d.ListKind
	}
	return d.Kind + "List"
}

// NodeFormDef is the NodeForm of a resource as the pipeline sees it.
type NodeFormDef struct {
	Own    string
	Fields []string
	Show   func(Object) Object
}

// SubDef is a subresource as the pipeline sees it.
type SubDef struct {
	Name     string
	Verbs    []string
	Body     *Body
	Reset    []string
	Prepare  func(obj, old Object)
	Validate func(obj, old Object) field.ErrorList
	Allow    func(ctx context.Context, d Door, obj, old Object) field.ErrorList // nil: nothing more to check
	Warn     func(obj, old Object) []string                                     // nil: none
	View     func(parent Object) (Object, error)
	Change   func(parent, body Object) error
	Do       func(ctx context.Context, d Door, call *Call, parent Object) (Object, error)
	Connect  func(ctx context.Context, d Door, c *Connection) (*Target, error)
	Needs    string
	// ReplicasPath is where a Scale finds the number of wanted replicas in its object; nil means spec.replicas.
	ReplicasPath []string
	// Confidential is as that of Resource.
	Confidential bool
}

// DeletionDef is Deletion without the type.
type DeletionDef struct {
	Grace       func(obj Object, options *metav1.DeleteOptions) int64
	Begin       func(obj Object)
	Held        func(obj Object) bool
	Propagation metav1.DeletionPropagation
	Warning     string
	Alone       bool
	Returns     bool
	Failed      string
	Check       func(obj Object) error
}

// Storage is the version that is stored.
func (d *Def) Storage() *Def {
	if d.Hub != nil {
		return d.Hub
	}
	return d
}

// Resource names the resource without its version.
func (d *Def) Resource() schema.GroupResource {
	return schema.GroupResource{Group: d.Group, Resource: d.Plural}
}

// Sub finds a subresource.
func (d *Def) Sub(name string) *SubDef {
	for _, s := range d.Subs {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// IsCustom says that the resource is that of a CustomResourceDefinition. Its descriptors are replaced whenever the definition changes, and
// no version of it is the hub of the others.
func (d *Def) IsCustom() bool { return d.Load != nil }

// Allows says whether a verb is served.
func (d *Def) Allows(verb string) bool { return contains(d.Verbs, verb) }

// Allows says whether a verb is served.
func (s *SubDef) Allows(verb string) bool { return contains(s.Verbs, verb) }

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// Prefix is the part of the store that holds the resource.
func (d *Def) Prefix() string { return "/registry/" + d.Storage().Stored + "/" }

// Key is where an object is stored.
func (d *Def) Key(namespace, name string) string {
	if d.Scope == Namespaced {
		return d.Prefix() + namespace + "/" + name
	}
	return d.Prefix() + name
}

// HoldsSecrets reports whether requests for the resource, or for a subresource of it, carry what only some may read.
func (d *Def) HoldsSecrets(sub string) bool {
	s := d.Sub(sub)
	return d.Confidential || s != nil && s.Confidential
}

// Define makes the Def of a resource.
func Define[T any, P interface {
	*T
	Object
}](r Resource[T]) *Def {
	d := &Def{
		GroupVersionKind: schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind},
		Plural:           r.Plural, Singular: r.Singular, Short: r.Short, Categories: r.Categories,
		Scope: r.Scope, Verbs: r.Verbs, Stored: r.Stored, StoredAs: r.StoredAs, Older: r.Older, TTL: r.TTL,
		CreateOnUpdate: r.CreateOnUpdate, Conditional: r.Conditional,
		Generation: r.Generation, HasStatus: r.Status != nil, Index: r.Index,
		FieldError: r.FieldError, Hidden: r.Hidden, Verbatim: r.Verbatim, AllowFirst: r.AllowFirst, Confidential: r.Confidential,
	}
	if d.Singular == "" {
		d.Singular = strings.ToLower(r.Kind)
	}
	if d.Stored == "" {
		d.Stored = r.Plural
	}
	if d.StoredAs == "" {
		d.StoredAs = r.Version
	}
	if d.Verbs == nil {
		d.Verbs = AllVerbs()
	}
	if d.FieldError == "" && r.Fields != nil {
		d.FieldError = "field label not supported: %s"
	}
	d.New = func() Object { return P(new(T)) }
	d.Default = func(o Object) {
		if r.Default != nil {
			r.Default((*T)(o.(P)))
		}
	}
	d.Warn = func(o, old Object) []string {
		if r.Warn == nil {
			return nil
		}
		return r.Warn((*T)(o.(P)), typed[T, P](old))
	}
	if r.Begin != nil {
		d.Begin = func(ctx context.Context, tx Txn, o, old Object) error {
			return r.Begin(ctx, tx, typed[T, P](o), typed[T, P](old))
		}
	}
	if r.Answer != nil {
		d.Asked = true
		d.Answer = func(ctx context.Context, door Door, o Object) error { return r.Answer(ctx, door, (*T)(o.(P))) }
	}
	if r.Computed != nil {
		d.Computed = func(ctx context.Context, door Door) ([]Object, error) {
			all, err := r.Computed(ctx, door)
			objects := make([]Object, len(all))
			for i, o := range all {
				objects[i] = P(o)
			}
			return objects, err
		}
	}
	if r.Act != nil {
		d.Asked, d.Act = true, r.Act
	}
	d.Deprecated = r.Deprecated
	d.Reset = r.Reset
	if d.Reset == nil && d.HasStatus {
		d.Reset = []string{"status"}
	}
	if r.PrepareFor != nil {
		d.PrepareFor = func(u user.Info, o, old Object) { r.PrepareFor(u, (*T)(o.(P)), typed[T, P](old)) }
	}
	d.Allow = allow[T, P](r.Allow)
	definePrepare[T, P](d, r)
	defineValidate[T, P](d, r)
	defineRow[T, P](d, r)
	defineDeletion[T, P](d, r)
	for _, s := range r.Subs {
		d.Subs = append(d.Subs, defineSub[T, P](r, s))
	}
	return d
}

func typed[T any, P interface {
	*T
	Object
}](o Object) *T {
	if o == nil {
		return nil
	}
	return (*T)(o.(P))
}

// allow erases the type of an Allow.
func allow[T any, P interface {
	*T
	Object
}](f func(context.Context, Door, *T, *T) field.ErrorList) func(context.Context, Door, Object, Object) field.ErrorList {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, door Door, o, old Object) field.ErrorList {
		return f(ctx, door, (*T)(o.(P)), typed[T, P](old))
	}
}

func definePrepare[T any, P interface {
	*T
	Object
}](d *Def, r Resource[T]) {
	d.Prepare = func(o, old Object) {
		obj, was := (*T)(o.(P)), typed[T, P](old)
		if r.Status != nil {
			if was == nil {
				if !r.KeepStatus {
					clear(r.Status(obj))
				}
			} else {
				put(r.Status(obj), r.Status(was))
			}
		}
		counted := r.CountFirst && was != nil && moved(r, obj, was)
		if r.Prepare != nil {
			r.Prepare(obj, was)
		}
		if !r.Generation {
			if old != nil { // a create keeps what the client says, which means nothing
				o.SetGeneration(old.GetGeneration())
			}
			return
		}
		if was == nil {
			if !r.Unnumbered {
				o.SetGeneration(1)
			}
			return
		}
		o.SetGeneration(old.GetGeneration())
		if counted || moved(r, obj, was) {
			o.SetGeneration(old.GetGeneration() + 1)
		}
	}
}

// moved says whether a change counts in metadata.generation. Equality is semantic: an absent list equals an
// empty one, and 1000m equals 1.
func moved[T any](r Resource[T], obj, was *T) bool {
	return r.Spec != nil && !equality.Semantic.DeepEqual(r.Spec(obj), r.Spec(was)) ||
		r.Changed != nil && r.Changed(obj, was)
}

func defineValidate[T any, P interface {
	*T
	Object
}](d *Def, r Resource[T]) {
	name := r.Name
	if name == nil {
		name = validation.NameIsDNSSubdomain
	}
	d.Validate = func(o, old Object) field.ErrorList {
		var errs field.ErrorList
		meta := field.NewPath("metadata")
		switch {
		case d.Asked: // a question has no name
		case old == nil:
			errs = validation.ValidateObjectMetaAccessor(o, d.Scope == Namespaced, validation.ValidateNameFunc(name), meta)
		default:
			errs = validation.ValidateObjectMetaAccessorUpdate(o, old, meta)
		}
		if !r.LooseMeta && !r.AnyFinalizer && !d.Asked {
			errs = append(errs, plainFinalizers(o, meta)...)
		}
		if r.Validate != nil {
			own := r.Validate((*T)(o.(P)), typed[T, P](old))
			if r.LooseMeta && old == nil && len(own) > 0 {
				errs = nil
			}
			errs = append(errs, own...)
		}
		return once(errs)
	}
}

// once drops errors that say again what another said.
func once(errs field.ErrorList) field.ErrorList {
	if len(errs) < 2 {
		return errs
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(errs, func(e *field.Error) bool {
		text := e.Error()
		again := seen[text]
		seen[text] = true
		return again
	})
}

// plainFinalizers refuses finalizers without a domain, but for the three that Kubernetes itself uses.
func plainFinalizers(o Object, meta *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, f := range o.GetFinalizers() {
		if !strings.Contains(f, "/") && f != "kubernetes" && f != metav1.FinalizerOrphanDependents && f != metav1.FinalizerDeleteDependents {
			errs = append(errs, field.Invalid(meta.Child("finalizers").Index(i), f, "name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	return errs
}

func defineRow[T any, P interface {
	*T
	Object
}](d *Def, r Resource[T]) {
	columns := r.Columns
	if columns == nil {
		columns = []Column[T]{NameColumn[T, P](), {
			Name: "Created At", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
			Value: func(o *T) any { return createdAt(P(o)) },
		}}
	}
	for _, c := range columns {
		if c.Name == "" { // a cell that no heading announces
			continue
		}
		def := metav1.TableColumnDefinition{Name: c.Name, Type: c.Type, Format: c.Format, Description: c.Description}
		if c.Type == "" {
			def.Type = "string"
		}
		if c.Wide {
			def.Priority = 1
		}
		d.Columns = append(d.Columns, def)
	}
	d.Row = func(o Object) []any {
		row := make([]any, len(columns))
		for i, c := range columns {
			row[i] = c.Value((*T)(o.(P)))
		}
		return row
	}
	if r.Outline != nil {
		d.Outline = func(o Object) Object { return P(r.Outline((*T)(o.(P)))) }
	}
	if f := r.ForNodes; f != nil {
		d.ForNodes = &NodeFormDef{Own: f.Own, Fields: f.Fields, Show: func(o Object) Object { return P(f.Show((*T)(o.(P)))) }}
	}
	if r.InList != nil {
		d.InList = func(all []Object) func(Object, []any) {
			list := make([]*T, len(all))
			for i, o := range all {
				list[i] = (*T)(o.(P))
			}
			change := r.InList(list)
			return func(o Object, row []any) { change((*T)(o.(P)), row) }
		}
	}
	if r.RowConditions != nil {
		d.RowConditions = func(o Object) []metav1.TableRowCondition { return r.RowConditions((*T)(o.(P))) }
	}
	d.Fields = map[string]func(Object) string{"metadata.name": Object.GetName}
	if d.Scope == Namespaced || r.Fields == nil { // a kind that names no fields is asked for both, whatever its scope
		d.Fields["metadata.namespace"] = Object.GetNamespace
	}
	for label, value := range r.Fields {
		if value == nil {
			delete(d.Fields, label)
			continue
		}
		d.Fields[label] = func(o Object) string { return value((*T)(o.(P))) }
	}
}

func defineDeletion[T any, P interface {
	*T
	Object
}](d *Def, r Resource[T]) {
	d.Deletion.Propagation, d.Deletion.Warning, d.Deletion.Alone = r.Delete.Propagation, r.Delete.Warning, r.Delete.Alone
	d.Deletion.Returns, d.Deletion.Failed = r.Delete.Returns, r.Delete.Failed
	if f := r.Delete.Grace; f != nil {
		d.Deletion.Grace = func(o Object, options *metav1.DeleteOptions) int64 { return f((*T)(o.(P)), options) }
	}
	if f := r.Delete.Begin; f != nil {
		d.Deletion.Begin = func(o Object) { f((*T)(o.(P))) }
	}
	if f := r.Delete.Held; f != nil {
		d.Deletion.Held = func(o Object) bool { return f((*T)(o.(P))) }
	}
	if f := r.Delete.Check; f != nil {
		d.Deletion.Check = func(o Object) error { return f((*T)(o.(P))) }
	}
}

func defineSub[T any, P interface {
	*T
	Object
}](r Resource[T], s Sub[T]) *SubDef {
	sub := &SubDef{Name: s.Name, Verbs: s.Verbs, Body: s.Body, Reset: s.Reset, Confidential: s.Confidential}
	switch {
	case s.Verbs != nil:
	case s.Do != nil:
		sub.Verbs = []string{"create"}
	case s.Connect != nil:
		sub.Verbs = []string{"create", "get"}
	default:
		sub.Verbs = []string{"get", "patch", "update"}
	}
	if sub.Reset == nil && s.Name == "status" && r.Spec != nil {
		sub.Reset = []string{"spec"}
	}
	sub.Prepare = func(o, old Object) {
		obj, was := (*T)(o.(P)), (*T)(old.(P))
		if s.Name == "status" && r.Spec != nil {
			put(r.Spec(obj), r.Spec(was))
		}
		if s.Prepare != nil {
			s.Prepare(obj, was)
		}
		o.SetGeneration(old.GetGeneration())
		if r.Generation && s.Name != "status" && moved(r, obj, was) {
			o.SetGeneration(old.GetGeneration() + 1)
		}
	}
	sub.Validate = func(o, old Object) field.ErrorList {
		errs := validation.ValidateObjectMetaAccessorUpdate(o, old, field.NewPath("metadata"))
		if !r.LooseMeta && !r.AnyFinalizer {
			errs = append(errs, plainFinalizers(o, field.NewPath("metadata"))...)
		}
		if s.Validate != nil {
			errs = append(errs, s.Validate((*T)(o.(P)), (*T)(old.(P)))...)
		}
		return once(errs)
	}
	sub.Allow = allow[T, P](s.Allow)
	if s.Warn != nil {
		sub.Warn = func(o, old Object) []string { return s.Warn((*T)(o.(P)), (*T)(old.(P))) }
	}
	if s.View != nil {
		sub.View = func(parent Object) (Object, error) { return s.View((*T)(parent.(P))) }
		sub.Change = func(parent, body Object) error { return s.Change((*T)(parent.(P)), body) }
	}
	if s.Do != nil {
		sub.Do = func(ctx context.Context, door Door, call *Call, parent Object) (Object, error) {
			return s.Do(ctx, door, call, typed[T, P](parent))
		}
	}
	sub.Connect, sub.Needs = s.Connect, s.Needs
	return sub
}

func put(dst, src any) { reflect.ValueOf(dst).Elem().Set(reflect.ValueOf(src).Elem()) }

func clear(dst any) { reflect.ValueOf(dst).Elem().SetZero() }

// Version makes the Def of another served version of hub's resource. to and from convert between the
// two; storing and preparing are the hub's. Validate of the Def takes objects of this version: it is the hub's
// behind a conversion, unless the version has rules of its own (events).
func Version[T, H any, P interface {
	*T
	Object
}, HP interface {
	*H
	Object
}](hub *Def, r Resource[T], to func(*T) *H, from func(*H) *T) *Def {
	d := Define[T, P](r)
	d.Hub = hub
	d.ToHub = func(o Object) Object { return HP(to((*T)(o.(P)))) }
	d.FromHub = func(o Object) Object { return P(from((*H)(o.(HP)))) }
	d.Stored, d.TTL = hub.Stored, hub.TTL
	d.Subs = hub.Subs // they work on the stored version
	if r.Validate == nil {
		d.Validate = func(o, old Object) field.ErrorList {
			if old != nil {
				old = d.ToHub(old)
			}
			return hub.Validate(d.ToHub(o), old)
		}
	}
	return d
}

// Is says that an object has the type of the resource.
func (d *Def) Is(o Object) bool { return reflect.TypeOf(o) == reflect.TypeOf(d.New()) }

// Showing is the resource with the columns of a projection of it.
func (d *Def) Showing(o Object) *Def {
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
