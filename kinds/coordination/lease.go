package coordination

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
)

// Leases are the heartbeats and locks of the cluster.
func Leases() *kind.Def {
	return kind.Define(kind.Resource[coordinationv1.Lease]{
		Group: "coordination.k8s.io", Version: "v1", Kind: "Lease", Plural: "leases",
		CreateOnUpdate: true,
		Validate:       validateLease,
		Columns: []kind.Column[coordinationv1.Lease]{
			kind.NameColumn[coordinationv1.Lease](),
			{Name: "Holder", Description: coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"], Value: func(l *coordinationv1.Lease) any {
				if l.Spec.HolderIdentity == nil {
					return ""
				}
				return *l.Spec.HolderIdentity
			}},
			kind.AgeColumn[coordinationv1.Lease](),
		},
	})
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
	return errs
}
