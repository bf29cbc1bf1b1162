package resource

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
)

func validateClass(c, old *resourcev1.DeviceClass) field.ErrorList               { return nil }
func validateTaintRule(c, old *resourcev1.DeviceTaintRule) field.ErrorList       { return nil }
func validateTaintRuleStatus(c, old *resourcev1.DeviceTaintRule) field.ErrorList { return nil }
func validateClaim(c, old *resourcev1.ResourceClaim) field.ErrorList             { return nil }
func validateClaimStatus(c, old *resourcev1.ResourceClaim) field.ErrorList       { return nil }
func validateTemplate(c, old *resourcev1.ResourceClaimTemplate) field.ErrorList  { return nil }
func validateSlice(c, old *resourcev1.ResourceSlice) field.ErrorList             { return nil }
func prepareClaim(c, old *resourcev1.ResourceClaim)                              {}
func prepareClaimStatus(c, old *resourcev1.ResourceClaim)                        {}
func prepareTemplate(c, old *resourcev1.ResourceClaimTemplate)                   {}
func prepareSlice(c, old *resourcev1.ResourceSlice)                              {}
func allowClaim(_ context.Context, _ kind.Door, c, old *resourcev1.ResourceClaim) field.ErrorList {
	return nil
}
func allowClaimStatus(_ context.Context, _ kind.Door, c, old *resourcev1.ResourceClaim) field.ErrorList {
	return nil
}
func allowTemplate(_ context.Context, _ kind.Door, c, old *resourcev1.ResourceClaimTemplate) field.ErrorList {
	return nil
}
