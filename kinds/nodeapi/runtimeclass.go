package nodeapi

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/core/containerspec"
	"proa.dev/kinds/core/podplacement"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/check"
)

// RuntimeClasses name the container runtimes that nodes offer.
func RuntimeClasses() *kind.Def {
	return kind.Define(kind.Resource[nodev1.RuntimeClass]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: "node.k8s.io", Version: "v1", Kind: "RuntimeClass"}, Plural: "runtimeclasses",
			Scope:                   kind.Cluster,
			CreateOnUpdate:          true,
			RequiresResourceVersion: true,
		},
		AnyFinalizer: true,
		Validate:     validateRuntimeClass,
		Warn:         warnRuntimeClass,
		Columns: []kind.Column[nodev1.RuntimeClass]{
			kind.NameColumn[nodev1.RuntimeClass](),
			{Name: "Handler", Value: func(r *nodev1.RuntimeClass) any { return r.Handler }},
			kind.AgeColumn[nodev1.RuntimeClass](),
		},
	})
}

func validateRuntimeClass(r, old *nodev1.RuntimeClass) field.ErrorList {
	var errs, last field.ErrorList
	handler := field.NewPath("handler")
	switch {
	case old != nil && r.Handler != old.Handler:
		if last = append(last, check.ImmutableError(handler)); r.Handler == "" {
			last = append(last, field.Required(handler, ""))
		} else {
			errs = append(errs, check.DNSLabel(r.Handler, handler)...)
		}
	case r.Handler == "":
		last = append(last, field.Required(handler, ""))
	default:
		last = append(last, check.DNSLabel(r.Handler, handler)...)
	}
	if r.Overhead != nil {
		errs = append(errs, containerspec.ValidateOverhead(r.Overhead.PodFixed, field.NewPath("overhead"))...)
	}
	if s := r.Scheduling; s != nil {
		path := field.NewPath("scheduling")
		errs = append(errs, metavalidation.ValidateLabels(s.NodeSelector, path.Child("nodeSelector"))...)
		errs = append(errs, validateTolerations(s.Tolerations, path.Child("tolerations"))...)
	}
	return append(errs, last...)
}

func validateTolerations(tolerations []corev1.Toleration, path *field.Path) field.ErrorList {
	errs := podplacement.ValidateTolerations(tolerations, path, false)
	seen := map[corev1.Toleration]bool{}
	for i, t := range tolerations {
		key := corev1.Toleration{Key: t.Key, Operator: t.Operator, Value: t.Value, Effect: t.Effect}
		if seen[key] {
			errs = append(errs, field.Duplicate(path.Index(i), check.GoFields(t)))
		}
		seen[key] = true
	}
	return errs
}

func warnRuntimeClass(r, _ *nodev1.RuntimeClass) []string {
	if r.Scheduling == nil {
		return nil
	}
	var warnings []string
	for _, key := range slices.Sorted(maps.Keys(r.Scheduling.NodeSelector)) {
		if text, ok := podplacement.DeprecatedNodeLabel(key); ok {
			warnings = append(warnings, "scheduling.nodeSelector: "+text)
		}
	}
	return warnings
}
