package deletion

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// IgnoresReadErrors says that a deletion has the option to delete an object that cannot be decoded, and only such an
// object.
func IgnoresReadErrors(o *metav1.DeleteOptions) bool {
	return o != nil && o.IgnoreStoreReadErrorWithClusterBreakingPotential != nil && *o.IgnoreStoreReadErrorWithClusterBreakingPotential
}

// RefuseUnsafeCollection refuses to delete a collection with the option that is meant for one object.
func RefuseUnsafeCollection(o *metav1.DeleteOptions) error {
	if !IgnoresReadErrors(o) {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", field.ErrorList{
		field.Invalid(field.NewPath("ignoreStoreReadErrorWithClusterBreakingPotential"), true, "is not allowed with DELETECOLLECTION, try again after removing the option"),
	})
}
