package kind

import (
	"context"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Define returns the Def of a resource.
func Define[T any, P interface {
	*T
	Object
}](r Resource[T]) *Def {
	d := &Def{Traits: r.Traits, HasStatus: r.Status != nil}
	if d.Singular == "" {
		d.Singular = strings.ToLower(r.Kind)
	}
	if d.StorageFolder == "" {
		d.StorageFolder = r.Plural
	}
	if d.StorageVersion == "" {
		d.StorageVersion = r.Version
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
		d.Transient = true
		d.Answer = func(ctx context.Context, door Server, o Object) error { return r.Answer(ctx, door, (*T)(o.(P))) }
	}
	if d.ComputedVersion = r.ComputedVersion; r.Computed != nil {
		d.Computed = func(ctx context.Context, door Server, which Selection) ([]Object, error) {
			all, err := r.Computed(ctx, door, which)
			objects := make([]Object, len(all))
			for i, o := range all {
				objects[i] = P(o)
			}
			return objects, err
		}
	}
	if r.Act != nil {
		d.Transient, d.Act = true, r.Act
	}
	if r.Ready != nil {
		d.Ready = func(o Object) bool { t, ok := o.(P); return ok && r.Ready((*T)(t)) }
	}
	if d.Reset == nil && d.HasStatus {
		d.Reset = []string{"status"}
	}
	if r.PrepareFor != nil {
		d.PrepareFor = func(u user.Info, o, old Object) { r.PrepareFor(u, (*T)(o.(P)), typed[T, P](old)) }
	}
	d.Allow = eraseAllow[T, P](r.Allow)
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

// eraseAllow removes the type parameter of an Allow function.
func eraseAllow[T any, P interface {
	*T
	Object
}](f func(context.Context, Server, *T, *T) field.ErrorList) func(context.Context, Server, Object, Object) field.ErrorList {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, door Server, o, old Object) field.ErrorList {
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
					setZero(r.Status(obj))
				}
			} else {
				assign(r.Status(obj), r.Status(was))
			}
		}
		counted := r.CountFirst && was != nil && hasChanged(r, obj, was)
		if r.Prepare != nil {
			r.Prepare(obj, was)
		}
		if !r.Generation {
			if old != nil { // a create keeps what the client sent, which has no meaning
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
		if counted || hasChanged(r, obj, was) {
			o.SetGeneration(old.GetGeneration() + 1)
		}
	}
}

// hasChanged reports whether a change increments metadata.generation. Equality is semantic: an absent list equals an
// empty one, and 1000m equals 1.
func hasChanged[T any](r Resource[T], obj, was *T) bool {
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
		case d.Transient: // a review has no name
		case old == nil:
			errs = validation.ValidateObjectMetaAccessor(o, d.Scope == Namespaced, validation.ValidateNameFunc(name), meta)
		default:
			errs = validation.ValidateObjectMetaAccessorUpdate(o, old, meta)
		}
		if !r.LooseMeta && !r.AnyFinalizer && !d.Transient {
			errs = append(errs, validateFinalizers(o, meta)...)
		}
		if r.Validate != nil {
			own := r.Validate((*T)(o.(P)), typed[T, P](old))
			if r.LooseMeta && old == nil && len(own) > 0 {
				errs = nil
			}
			errs = append(errs, own...)
		}
		return distinct(errs)
	}
}

// distinct drops errors with a text that an earlier one has.
func distinct(errs field.ErrorList) field.ErrorList {
	if len(errs) < 2 {
		return errs
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(errs, func(e *field.Error) bool {
		text := e.Error()
		repeated := seen[text]
		seen[text] = true
		return repeated
	})
}

// validateFinalizers refuses finalizers without a domain, but for the three that Kubernetes itself uses.
func validateFinalizers(o Object, meta *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, f := range o.GetFinalizers() {
		if !strings.Contains(f, "/") && f != "kubernetes" && f != metav1.FinalizerOrphanDependents &&
			f != metav1.FinalizerDeleteDependents {
			errs = append(errs, field.Invalid(meta.Child("finalizers").Index(i), f,
				"name is neither a standard finalizer name nor is it fully qualified"))
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
		if c.Name == "" { // a cell without a heading
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
	if d.Scope == Namespaced || r.Fields == nil { // a kind without fields of its own has both, whatever its scope
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
	d.Deletion.Propagation, d.Deletion.Warning, d.Deletion.HasNoDependents = r.Delete.Propagation, r.Delete.Warning,
		r.Delete.HasNoDependents
	d.Deletion.ReturnsObject, d.Deletion.PreconditionText = r.Delete.ReturnsObject, r.Delete.PreconditionText
	if f := r.Delete.Grace; f != nil {
		d.Deletion.Grace = func(o Object, options *metav1.DeleteOptions) int64 { return f((*T)(o.(P)), options) }
	}
	if f := r.Delete.Begin; f != nil {
		d.Deletion.Begin = func(o Object) { f((*T)(o.(P))) }
	}
	if f := r.Delete.IsHeld; f != nil {
		d.Deletion.IsHeld = func(o Object) bool { return f((*T)(o.(P))) }
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
			assign(r.Spec(obj), r.Spec(was))
		}
		if s.Prepare != nil {
			s.Prepare(obj, was)
		}
		o.SetGeneration(old.GetGeneration())
		if r.Generation && s.Name != "status" && hasChanged(r, obj, was) {
			o.SetGeneration(old.GetGeneration() + 1)
		}
	}
	sub.Validate = func(o, old Object) field.ErrorList {
		errs := validation.ValidateObjectMetaAccessorUpdate(o, old, field.NewPath("metadata"))
		if !r.LooseMeta && !r.AnyFinalizer {
			errs = append(errs, validateFinalizers(o, field.NewPath("metadata"))...)
		}
		if s.Validate != nil {
			errs = append(errs, s.Validate((*T)(o.(P)), (*T)(old.(P)))...)
		}
		return distinct(errs)
	}
	sub.Allow = eraseAllow[T, P](s.Allow)
	if s.Warn != nil {
		sub.Warn = func(o, old Object) []string { return s.Warn((*T)(o.(P)), (*T)(old.(P))) }
	}
	if s.View != nil {
		sub.View = func(parent Object) (Object, error) { return s.View((*T)(parent.(P))) }
		sub.Change = func(parent, body Object) error { return s.Change((*T)(parent.(P)), body) }
	}
	if s.Do != nil {
		sub.Do = func(ctx context.Context, door Server, call *Call, parent Object) (Object, error) {
			return s.Do(ctx, door, call, typed[T, P](parent))
		}
	}
	sub.Connect, sub.RequiredVerb = s.Connect, s.RequiredVerb
	return sub
}

func assign(dst, src any) { reflect.ValueOf(dst).Elem().Set(reflect.ValueOf(src).Elem()) }

func setZero(dst any) { reflect.ValueOf(dst).Elem().SetZero() }

// Version returns the Def of another served version of hub's resource. to and from convert between the
// two; the hub's descriptor stores and prepares objects. Validate of the Def takes objects of this version: it converts them and calls
// the hub's, unless the version has rules of its own (events).
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
	d.StorageFolder, d.TTL = hub.StorageFolder, hub.TTL
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
