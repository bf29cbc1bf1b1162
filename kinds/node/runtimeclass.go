package node

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/check"
	"proa.dev/kinds/core"
	"proa.dev/kinds/kind"
)

// RuntimeClasses name the ways in which a node can run a pod.
func RuntimeClasses() *kind.Def {
	return kind.Define(kind.Resource[nodev1.RuntimeClass]{
		Group: "node.k8s.io", Version: "v1", Kind: "RuntimeClass", Plural: "runtimeclasses", Scope: kind.Cluster,
		CreateOnUpdate: true,
		AnyFinalizer:   true,
		Conditional:    true,
		Validate:       validateRuntimeClass,
		Warn:           warnRuntimeClass,
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
		if last = append(last, check.Fixed(handler)); r.Handler == "" {
			last = append(last, field.Required(handler, ""))
		} else {
			errs = append(errs, check.Messages(r.Handler, handler, utilvalidation.IsDNS1123Label(r.Handler))...)
		}
	case r.Handler == "":
		last = append(last, field.Required(handler, ""))
	default:
		last = append(last, check.Messages(r.Handler, handler, utilvalidation.IsDNS1123Label(r.Handler))...)
	}
	if r.Overhead != nil {
		errs = append(errs, core.ValidateOverhead(r.Overhead.PodFixed, field.NewPath("overhead"))...)
	}
	if s := r.Scheduling; s != nil {
		path := field.NewPath("scheduling")
		errs = append(errs, metavalidation.ValidateLabels(s.NodeSelector, path.Child("nodeSelector"))...)
		errs = append(errs, validateTolerations(s.Tolerations, path.Child("tolerations"))...)
	}
	return append(errs, last...)
}

func validateTolerations(tolerations []corev1.Toleration, path *field.Path) field.ErrorList {
	errs := core.ValidateTolerations(tolerations, path, false)
	seen := map[corev1.Toleration]bool{}
	for i, t := range tolerations {
		key := corev1.Toleration{Key: t.Key, Operator: t.Operator, Value: t.Value, Effect: t.Effect}
		if seen[key] {
			errs = append(errs, field.Duplicate(path.Index(i), check.Internal(t)))
		}
		seen[key] = true
	}
	return errs
}

// renamedLabels are labels of nodes that have newer names.
func renamedLabels() map[string]string {
	return map[string]string{
		"beta.kubernetes.io/arch":                       `deprecated since v1.14; use "kubernetes.io/arch" instead`,
		"beta.kubernetes.io/os":                         `deprecated since v1.14; use "kubernetes.io/os" instead`,
		"failure-domain.beta.kubernetes.io/region":      `deprecated since v1.17; use "topology.kubernetes.io/region" instead`,
		"failure-domain.beta.kubernetes.io/zone":        `deprecated since v1.17; use "topology.kubernetes.io/zone" instead`,
		"beta.kubernetes.io/instance-type":              `deprecated since v1.17; use "node.kubernetes.io/instance-type" instead`,
		"app.kubernetes.io/created-by":                  `deprecated since v1.9`,
		"scheduler.alpha.kubernetes.io/preferAvoidPods": `deprecated since v1.22; use Taints and Tolerations instead`,
		"node-role.kubernetes.io/master":                `use "node-role.kubernetes.io/control-plane" instead`,
	}
}

func warnRuntimeClass(r, _ *nodev1.RuntimeClass) []string {
	if r.Scheduling == nil {
		return nil
	}
	var warnings []string
	renamed := renamedLabels()
	for _, key := range slices.Sorted(maps.Keys(r.Scheduling.NodeSelector)) {
		if text, ok := renamed[key]; ok {
			warnings = append(warnings, "scheduling.nodeSelector: "+text)
		}
	}
	return warnings
}
