// Package fieldmanager finds what keeps the managedFields of a resource, built-in or custom: it joins the field managers of
// package schema with the resources of the State.
package fieldmanager

import (
	"log/slog"

	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"proa.dev/kinds/kind"
	"proa.dev/server/schema"
	"proa.dev/server/state"
)

// Fields keeps the managedFields of all resources.
type Fields struct {
	Owner *schema.Owner // nil when managedFields are not kept
	State *state.State
	Log   *slog.Logger
}

// Update returns obj with managedFields that record which of its fields a write by manager has changed from live.
func (f *Fields) Update(def *kind.Def, sub *kind.SubDef, live, obj kind.Object, manager string) kind.Object {
	if f.Owner == nil {
		return obj
	}
	out, err := f.Manager(def, sub).Update(live, obj, manager)
	if err != nil {
		f.Log.Warn("cannot update managedFields", "kind", def.Kind, "name", obj.GetName(), "err", err)
	}
	if o, ok := out.(kind.Object); ok {
		return o
	}
	return obj
}

// Manager returns what keeps the managedFields of the objects of a resource, or of one of its subresources; sub may be nil.
func (f *Fields) Manager(def *kind.Def, sub *kind.SubDef) *schema.Manager {
	t := schema.Target{Kind: def.GroupVersionKind, Hub: def.Storage().GroupVersion()}
	switch {
	case sub != nil:
		t.Subresource, t.Reset = sub.Name, sub.Reset
		if sub.Do != nil && sub.Body != nil { // an action's fields are those of its body
			t.Kind, t.Hub = sub.Body.GroupVersionKind, sub.Body.GroupVersion()
		}
	default:
		t.Reset = def.Storage().Reset
	}
	if def.Load != nil {
		return f.State.CustomFieldManager(f.Owner, def, t)
	}
	return f.Owner.For(t)
}

// TypeConverter returns the types by which configurations are applied to objects of a kind, built-in or custom; nil
// when there is no such kind.
func (f *Fields) TypeConverter(gvk runtimeschema.GroupVersionKind) managedfields.TypeConverter {
	if types := f.Owner.TypeConverter(gvk); types != nil {
		return schema.Bounded(types)
	}
	def := f.State.DefOfKind(gvk)
	if def == nil {
		return nil
	}
	c := f.State.Custom(def)
	if c == nil {
		return nil
	}
	types, err := c.Types()
	if err != nil {
		f.Log.Warn("the schema of a custom resource cannot be used to apply configurations", "kind", gvk, "err", err)
	}
	return schema.Bounded(types.Converter)
}
