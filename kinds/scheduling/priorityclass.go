package scheduling

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/check"
)

// Priorities above highestUser belong to the system.
const (
	systemPrefix   = "system-"
	highestUser    = int32(1000000000)
	systemCritical = 2 * highestUser
)

// PriorityClasses name priorities of pods.
func PriorityClasses() *kind.Def {
	doc := schedulingv1.PriorityClass{}.SwaggerDoc()
	return kind.Define(kind.Resource[schedulingv1.PriorityClass]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: "scheduling.k8s.io", Version: "v1", Kind: "PriorityClass"},
			Plural:           "priorityclasses", Short: []string{"pc"},
			Scope:      kind.Cluster,
			Generation: true,
		},
		Default: func(p *schedulingv1.PriorityClass) {
			if p.PreemptionPolicy == nil {
				p.PreemptionPolicy = new(corev1.PreemptLowerPriority)
			}
		},
		Validate: validatePriorityClass,
		Columns: []kind.Column[schedulingv1.PriorityClass]{
			kind.NameColumn[schedulingv1.PriorityClass](),
			{Name: "Value", Type: "integer", Description: doc["value"],
				Value: func(p *schedulingv1.PriorityClass) any { return int64(p.Value) }},
			{Name: "Global-Default", Type: "boolean", Description: doc["globalDefault"],
				Value: func(p *schedulingv1.PriorityClass) any { return p.GlobalDefault }},
			kind.AgeColumn[schedulingv1.PriorityClass](),
			{Name: "PreemptionPolicy", Description: doc["preemptionPolicy"], Value: func(p *schedulingv1.PriorityClass) any {
				if p.PreemptionPolicy == nil {
					return ""
				}
				return string(*p.PreemptionPolicy)
			}},
		},
		Delete: kind.Deletion[schedulingv1.PriorityClass]{Check: func(p *schedulingv1.PriorityClass) error {
			if bootstrapClass(p.Name) == nil {
				return nil
			}
			return apierrors.NewForbidden(schema.GroupResource{Group: "scheduling.k8s.io", Resource: "priorityclasses"}, p.Name,
				errors.New("this is a system priority class and cannot be deleted"))
		}},
	})
}

// BootstrapClasses returns the initial priority classes of a cluster.
func BootstrapClasses() []*schedulingv1.PriorityClass {
	return []*schedulingv1.PriorityClass{
		{
			ObjectMeta:  metav1.ObjectMeta{Name: "system-node-critical"},
			Value:       systemCritical + 1000,
			Description: "Used for system critical pods that must not be moved from their current node.",
		},
		{
			ObjectMeta:  metav1.ObjectMeta{Name: "system-cluster-critical"},
			Value:       systemCritical,
			Description: "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
		},
	}
}

func bootstrapClass(name string) *schedulingv1.PriorityClass {
	for _, p := range BootstrapClasses() {
		if p.Name == name {
			return p
		}
	}
	return nil
}

func validatePriorityClass(p, old *schedulingv1.PriorityClass) field.ErrorList {
	var errs field.ErrorList
	policy := field.NewPath("preemptionPolicy")
	if old != nil {
		if p.Value != old.Value {
			errs = append(errs, field.Forbidden(field.NewPath("value"), "may not be changed in an update."))
		}
		return append(errs, check.Immutable(p.PreemptionPolicy, old.PreemptionPolicy, policy)...)
	}
	if strings.HasPrefix(p.Name, systemPrefix) {
		if reason := systemClassError(p); reason != "" {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "name"),
				"priority class names with '"+systemPrefix+"' prefix are reserved for system use only. error: "+reason))
		}
	} else if p.Value > highestUser {
		errs = append(errs, field.Forbidden(field.NewPath("value"),
			fmt.Sprintf("maximum allowed value of a user defined priority is %v", highestUser)))
	}
	switch v := p.PreemptionPolicy; {
	case v == nil || *v == corev1.PreemptLowerPriority || *v == corev1.PreemptNever:
	case *v == "":
		errs = append(errs, field.Required(policy, ""))
	default:
		errs = append(errs, field.NotSupported(policy, *v, []corev1.PreemptionPolicy{corev1.PreemptLowerPriority, corev1.PreemptNever}))
	}
	return errs
}

// systemClassError returns why a class with the reserved prefix is not one of the system's own.
func systemClassError(p *schedulingv1.PriorityClass) string {
	switch own := bootstrapClass(p.Name); {
	case own == nil:
		return p.Name + " is not a known system priority class"
	case own.Value != p.Value:
		return fmt.Sprintf("value of %v PriorityClass must be %v", own.Name, own.Value)
	case p.GlobalDefault:
		return fmt.Sprintf("globalDefault of %v PriorityClass must be false", own.Name)
	}
	return ""
}
