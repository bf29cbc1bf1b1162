package scheduling

import (
	"strings"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/check"
)

// Gangs lists the kinds of gang scheduling. They are of a beta that is disabled by default, so they are not in All.
func Gangs() []*kind.Def { return []*kind.Def{PodGroups(), Workloads()} }

// PodGroups are pods that are scheduled together or not at all.
func PodGroups() *kind.Def {
	type group = schedulingv1beta1.PodGroup
	return kind.Define(kind.Resource[group]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: "scheduling.k8s.io", Version: "v1beta1", Kind: "PodGroup"},
			Plural:           "podgroups", Scope: kind.Namespaced,
			Older:                   kind.SameLayout("v1alpha3"),
			Generation:              true,
			RequiresResourceVersion: true,
		},
		Spec:   func(g *group) any { return &g.Spec },
		Status: func(g *group) any { return &g.Status },
		Default: func(g *group) {
			if g.Spec.DisruptionMode == nil {
				g.Spec.DisruptionMode = &schedulingv1beta1.DisruptionMode{Single: &schedulingv1beta1.SingleDisruptionMode{}}
			}
		},
		Prepare:  dropDisabled,
		Validate: validatePodGroup,
		Subs: []kind.Sub[group]{{
			Name: "status", Reset: []string{"metadata", "spec"},
			Prepare: func(g, old *group) {
				metav1.ResetObjectMetaForStatus(g, old)
				if len(old.Spec.ResourceClaims) == 0 {
					g.Status.ResourceClaimStatuses = nil
				}
			},
			Validate: func(g, _ *group) field.ErrorList {
				return metav1validation.ValidateConditions(g.Status.Conditions, field.NewPath("status", "conditions"))
			},
		}},
		Columns: []kind.Column[group]{
			kind.NameColumn[group](),
			{Name: "Policy", Description: schedulingv1beta1.PodGroupSpec{}.SwaggerDoc()["schedulingPolicy"], Value: func(g *group) any {
				if g.Spec.SchedulingPolicy.Gang != nil {
					return "Gang"
				}
				return "Basic"
			}},
			{Name: "Workload", Description: "Name of the referenced Workload object", Value: func(g *group) any {
				if g.Spec.WorkloadRef == nil {
					return "<none>"
				}
				return g.Spec.WorkloadRef.WorkloadName
			}},
			{Name: "Status", Description: "Status of the PodGroup", Value: func(g *group) any { return groupState(g) }},
			kind.AgeColumn[group](),
		},
	})
}

// groupState returns the state of a group in one word.
func groupState(g *schedulingv1beta1.PodGroup) string {
	state := "Pending"
	for _, c := range g.Status.Conditions {
		switch {
		case c.Type == schedulingv1beta1.DisruptionTarget:
			return c.Reason
		case c.Type == schedulingv1beta1.PodGroupInitiallyScheduled && c.Status == metav1.ConditionTrue:
			state = "Scheduled"
		case c.Type == schedulingv1beta1.PodGroupInitiallyScheduled:
			state = "Unschedulable"
		}
	}
	return state
}

// dropDisabled drops the fields of disabled alpha features, unless old has them.
func dropDisabled(g, old *schedulingv1beta1.PodGroup) {
	was := &schedulingv1beta1.PodGroupSpec{}
	if old != nil {
		was = &old.Spec
	}
	if was.ParentCompositePodGroupName == nil {
		g.Spec.ParentCompositePodGroupName = nil
	}
	if was.SchedulingConstraints == nil {
		g.Spec.SchedulingConstraints = nil
	}
	if len(was.ResourceClaims) == 0 {
		g.Spec.ResourceClaims = nil
	}
	if was.PreemptionPolicy == nil {
		g.Spec.PreemptionPolicy = nil
	}
}

func validatePodGroup(g, old *schedulingv1beta1.PodGroup) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	if old != nil {
		return append(validateSchedulingPolicy(&g.Spec.SchedulingPolicy, spec.Child("schedulingPolicy")),
			validatePodGroupChange(&g.Spec, &old.Spec, spec)...)
	}
	errs = validateSchedulingPolicy(&g.Spec.SchedulingPolicy, spec.Child("schedulingPolicy"))
	if ref := g.Spec.WorkloadRef; ref != nil {
		errs = append(errs, requiredName(ref.WorkloadName, spec.Child("workloadRef", "workloadName"), validation.IsDNS1123Subdomain)...)
		errs = append(errs, requiredName(ref.TemplateName, spec.Child("workloadRef", "templateName"), validation.IsDNS1123Label)...)
	}
	errs = append(errs, validateDisruption(g.Spec.DisruptionMode, spec.Child("disruptionMode"))...)
	return append(errs, validateImportance(g.Spec.PriorityClassName, g.Spec.Priority, spec)...)
}

// validatePodGroupChange refuses changes of a group, but for the size of its gang.
func validatePodGroupChange(g, old *schedulingv1beta1.PodGroupSpec, spec *field.Path) (errs field.ErrorList) {
	policy := spec.Child("schedulingPolicy")
	if (g.SchedulingPolicy.Basic == nil) != (old.SchedulingPolicy.Basic == nil) {
		errs = append(errs, check.ImmutableError(policy.Child("basic")))
	}
	switch is, was := g.SchedulingPolicy.Gang != nil, old.SchedulingPolicy.Gang != nil; {
	case is && !was:
		errs = append(errs, field.Invalid(policy.Child("gang"), nil, "field cannot be set once created"))
	case was && !is:
		errs = append(errs, field.Invalid(policy.Child("gang"), nil, "field cannot be cleared once set"))
	}
	for _, f := range []struct {
		name    string
		is, was any
	}{
		{"workloadRef", g.WorkloadRef, old.WorkloadRef}, {"disruptionMode", g.DisruptionMode, old.DisruptionMode},
		{"priorityClassName", g.PriorityClassName, old.PriorityClassName}, {"priority", g.Priority, old.Priority},
		{"parentCompositePodGroupName", g.ParentCompositePodGroupName, old.ParentCompositePodGroupName},
		{"schedulingConstraints", g.SchedulingConstraints, old.SchedulingConstraints},
		{"resourceClaims", g.ResourceClaims, old.ResourceClaims}, {"preemptionPolicy", g.PreemptionPolicy, old.PreemptionPolicy},
	} {
		errs = append(errs, check.Immutable(f.is, f.was, spec.Child(f.name))...)
	}
	return errs
}

func validateSchedulingPolicy(p *schedulingv1beta1.PodGroupSchedulingPolicy, at *field.Path) field.ErrorList {
	switch {
	case p.Basic == nil && p.Gang == nil:
		return field.ErrorList{field.Invalid(at, "", "must specify one of: `basic`, `gang`")}
	case p.Basic != nil && p.Gang != nil:
		return field.ErrorList{field.Invalid(at, "{`basic`, `gang`}", "must specify exactly one of: `basic`, `gang`")}
	case p.Gang == nil:
		return nil
	case p.Gang.MinCount == 0:
		return field.ErrorList{field.Required(at.Child("gang", "minCount"), "")}
	case p.Gang.MinCount < 1:
		return field.ErrorList{field.Invalid(at.Child("gang", "minCount"), p.Gang.MinCount, "must be greater than or equal to 1")}
	}
	return nil
}

func validateDisruption(m *schedulingv1beta1.DisruptionMode, at *field.Path) field.ErrorList {
	switch {
	case m == nil || (m.Single == nil) != (m.All == nil):
		return nil
	case m.Single == nil:
		return field.ErrorList{field.Invalid(at, "", "must specify one of: `all`, `single`")}
	}
	return field.ErrorList{field.Invalid(at, "{`all`, `single`}", "must specify exactly one of: `all`, `single`")}
}

// validateImportance checks a priority and the name of its class.
func validateImportance(class string, priority *int32, at *field.Path) (errs field.ErrorList) {
	if class != "" {
		errs = check.DNSSubdomain(class, at.Child("priorityClassName"))
	}
	if priority != nil && *priority > highestUser {
		errs = append(errs, field.Invalid(at.Child("priority"), *priority, "must be less than or equal to 1000000000"))
	}
	return errs
}

func requiredName(name string, at *field.Path, wrong func(string) []string) field.ErrorList {
	if strings.TrimSpace(name) == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	return check.Messages(name, at, wrong(name))
}
