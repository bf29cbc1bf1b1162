package coordination

import (
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/check"
)

// Leases are the heartbeats and locks of the cluster.
func Leases() *kind.Def {
	return kind.Define(kind.Resource[coordinationv1.Lease]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}, Plural: "leases",
			CreateOnUpdate:          true,
			RequiresResourceVersion: true,
		},
		AnyFinalizer: true,
		Prepare:      prepareLease,
		Validate:     validateLease,
		Columns: []kind.Column[coordinationv1.Lease]{
			kind.NameColumn[coordinationv1.Lease](),
			{Name: "Holder", Description: coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"],
				Value: func(l *coordinationv1.Lease) any {
					if l.Spec.HolderIdentity == nil {
						return ""
					}
					return *l.Spec.HolderIdentity
				}},
			kind.AgeColumn[coordinationv1.Lease](),
		},
	})
}

// prepareLease drops the fields of coordinated leader election, which is disabled, unless the stored lease has them.
func prepareLease(l, old *coordinationv1.Lease) {
	if old == nil || old.Spec.Strategy == nil {
		l.Spec.Strategy = nil
	}
	if old == nil || old.Spec.PreferredHolder == nil {
		l.Spec.PreferredHolder = nil
	}
}

func validateLease(l, _ *coordinationv1.Lease) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if d := l.Spec.LeaseDurationSeconds; d != nil && *d <= 0 {
		errs = append(errs, field.Invalid(spec.Child("leaseDurationSeconds"), *d, "must be greater than 0"))
	}
	if n := l.Spec.LeaseTransitions; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(spec.Child("leaseTransitions"), *n, "must be greater than or equal to 0"))
	}
	strategy := l.Spec.Strategy
	if strategy != nil {
		// Upstream has the name twice in this path.
		path := spec.Child("strategy", "strategy")
		if strings.Contains(string(*strategy), "/") {
			errs = append(errs, check.Messages(*strategy, path, utilvalidation.IsQualifiedName(string(*strategy)))...)
		} else if *strategy != coordinationv1.OldestEmulationVersion {
			errs = append(errs, field.NotSupported(path, *strategy,
				[]coordinationv1.CoordinatedLeaseStrategy{coordinationv1.OldestEmulationVersion}))
		}
	}
	if h := l.Spec.PreferredHolder; h != nil && *h != "" && (strategy == nil || *strategy == "") {
		errs = append(errs, field.Forbidden(spec.Child("preferredHolder"), "may only be specified if `strategy` is defined"))
	}
	return errs
}
