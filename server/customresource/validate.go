package customresource

import (
	"context"
	"errors"
	"fmt"
	"time"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metavalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"

	"proa.dev/kinds/kind"
)

// validate checks a new object, or an update if old is not nil, with the errors in upstream's order.
func (v *version) validate(o, old kind.Object) field.ErrorList {
	obj := o.(*unstructured.Unstructured)
	c, err := v.schema()
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	if errs := v.validateType(obj); len(errs) > 0 {
		return errs
	}
	namespaced := v.def.Scope == kind.Namespaced
	if old == nil {
		errs := metavalidation.ValidateObjectMetaAccessor(obj, namespaced, metavalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
		errs = append(errs, validation.ValidateCustomResource(nil, obj.Object, c.whole)...)
		errs = append(errs, v.validateScale(obj, true)...)
		errs = append(errs, objectmeta.Validate(v.resource.ctx, nil, obj.Object, c.structural, false)...)
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, c.structural, obj.Object)...)
		return v.validateRules(errs, c.structural, obj, nil)
	}
	was := old.(*unstructured.Unstructured)
	both := common.NewCorrelatedObject(obj.Object, was.Object, &model.Structural{Structural: c.structural})
	errs := metavalidation.ValidateObjectMetaAccessorUpdate(obj, was, field.NewPath("metadata"))
	errs = append(errs, validation.ValidateCustomResourceUpdate(nil, obj.Object, was.Object, c.whole, validation.WithRatcheting(both))...)
	errs = append(errs, v.validateScale(obj, true)...)
	errs = append(errs, objectmeta.Validate(v.resource.ctx, nil, obj.Object, c.structural, false)...)
	errs = append(errs, newListErrors(c.structural, obj, was)...)
	return v.validateRules(errs, c.structural, obj, was, cel.WithRatcheting(both))
}

// validateStatus checks an update of the status.
func (v *version) validateStatus(o, old kind.Object) field.ErrorList {
	obj, was := o.(*unstructured.Unstructured), old.(*unstructured.Unstructured)
	c, err := v.schema()
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	if errs := v.validateType(obj); len(errs) > 0 {
		return errs
	}
	both := common.NewCorrelatedObject(obj.Object, was.Object, &model.Structural{Structural: c.structural})
	var options []validation.ValidationOption
	if c.structural != nil {
		options = append(options, validation.WithRatcheting(both.Key("status")))
	}
	errs := metavalidation.ValidateObjectMetaAccessorUpdate(obj, was, field.NewPath("metadata"))
	if status, found := obj.Object["status"]; found && c.status != nil {
		errs = append(errs, validation.ValidateCustomResourceUpdate(field.NewPath("status"), status, was.Object["status"], c.status,
			options...)...)
	}
	errs = append(errs, v.validateScale(obj, false)...)
	errs = append(errs, newListErrors(c.structural, obj, was)...)
	return v.validateRules(errs, c.structural, obj, was, cel.WithRatcheting(both))
}

// newListErrors finds duplicate entries of sets and maps. Duplicates that were stored before may stay.
func newListErrors(s *structuralschema.Structural, obj, was *unstructured.Unstructured) field.ErrorList {
	errs := listtype.ValidateListSetsAndMaps(nil, s, obj.Object)
	if len(errs) > 0 && len(listtype.ValidateListSetsAndMaps(nil, s, was.Object)) > 0 {
		return nil
	}
	return errs
}

// validateType checks that kind and version have not been changed.
func (v *version) validateType(obj *unstructured.Unstructured) (errs field.ErrorList) {
	want := v.resource.kindOf(v.spec.Name)
	if got := obj.GetKind(); got != want.Kind {
		errs = append(errs, field.Invalid(field.NewPath("kind"), got, fmt.Sprintf("must be %v", want.Kind)))
	}
	if got := obj.GetAPIVersion(); got != want.GroupVersion().String() {
		errs = append(errs, field.Invalid(field.NewPath("apiVersion"), got, fmt.Sprintf("must be %v", want.GroupVersion())))
	}
	return errs
}

// rulesTimeout is how long the rules of one object may take. Their cost is limited too; this is for slow machines.
const rulesTimeout = 10 * time.Second

// validateRules adds the violations of CEL rules. Rules are not evaluated for objects that do not fit the schema.
func (v *version) validateRules(errs field.ErrorList, s *structuralschema.Structural, obj, was *unstructured.Unstructured,
	options ...cel.Option) field.ErrorList {
	rules := v.rules()
	if rules == nil {
		return errs
	}
	if blocksRules(errs) {
		return append(errs, field.Invalid(nil, nil, "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"))
	}
	if reads := v.quantities(); reads.Fields || reads.Computed {
		if e := harmfulQuantity(obj, reads); e != nil {
			return append(errs, e)
		}
	}
	var before any
	if was != nil {
		before = was.Object
	}
	ctx, stop := context.WithTimeoutCause(v.resource.ctx, rulesTimeout, errors.New("the rules take too long"))
	defer stop()
	more, _ := rules.Validate(ctx, nil, s, obj.Object, before, celconfig.RuntimeCELCostBudget, options...)
	return append(errs, more...)
}

// blocksRules reports whether an object does not fit the types and sizes of its schema.
func blocksRules(errs field.ErrorList) bool {
	for _, e := range errs {
		switch e.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany,
			field.ErrorTypeTypeInvalid:
			return true
		default:
		}
	}
	return false
}
