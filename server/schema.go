package server

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
	"proa.dev/server/schema"
)

// checkKind is the second half of hop 5: the kind, or the subresource, sets the fields that are its own, validates the
// object and warns of it.
func (s *Server) checkKind(ctx context.Context, r *Request, obj, old kind.Object) error {
	def := r.Def.Storage()
	if old != nil {
		obj.SetSelfLink("")
		schema.KeepTimes(old, obj)
	}
	var errs field.ErrorList
	var warn func(obj, old kind.Object) []string
	var allow func(ctx context.Context, d kind.Server, obj, old kind.Object) field.ErrorList
	if r.Sub != nil && r.Sub.View == nil {
		r.Sub.Prepare(obj, old)
		errs, warn, allow = r.Sub.Validate(obj, old), r.Sub.Warn, r.Sub.Allow
	} else {
		def.Prepare(obj, old)
		if def.PrepareFor != nil {
			def.PrepareFor(r.User, obj, old)
		}
		errs, warn, allow = s.validateAs(r.Def, obj, old), def.Warn, def.Allow
	}
	if allow != nil && (len(errs) == 0 || def.AllowFirst) {
		errs = append(allow(ctx, s.services(r), obj, old), errs...)
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(def.GroupKind(), obj.GetName(), errs)
	}
	if warn != nil {
		r.Warn(warn(obj, old)...)
	}
	return nil
}

// validateAs validates an object in its storage version by the rules of the version in which it was sent.
func (s *Server) validateAs(def *kind.Def, obj, old kind.Object) field.ErrorList {
	if def.Hub == nil {
		return def.Validate(obj, old)
	}
	var shownOld kind.Object
	if old != nil {
		shownOld = def.FromHub(old)
	}
	return def.Validate(def.FromHub(obj), shownOld)
}

// updateFieldOwners returns obj with managedFields that record which of its fields this request has changed from live.
func (s *Server) updateFieldOwners(r *Request, live, obj kind.Object) kind.Object {
	return s.fields.Update(r.Def, r.Sub, live, obj, schema.ManagerName(r.Options.Manager, r.Agent))
}

// TypeConverter returns the types by which configurations are applied to objects of a kind, built-in or custom; nil
// when there is no such kind.
func (s *Server) TypeConverter(gvk runtimeschema.GroupVersionKind) managedfields.TypeConverter {
	return s.fields.TypeConverter(gvk)
}

// FieldManager is the field manager of the server itself and of its controllers.
const FieldManager = "proa"
