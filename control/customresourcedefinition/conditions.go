package customresourcedefinition

import (
	"crypto/x509"
	"fmt"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

type condition = apiextensionsv1.CustomResourceDefinitionCondition

// namesAccepted returns the condition NamesAccepted.
func namesAccepted(c *conflict) condition {
	if c != nil {
		return condition{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionFalse, Reason: c.reason,
			Message: c.err.Error()}
	}
	return condition{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue, Reason: "NoConflicts",
		Message: "no conflicts found"}
}

// established returns the condition Established. A resource that was served once stays established, even if it does not get
// names that its definition asked for later.
func established(c *crd, conflicts bool) condition {
	old := findCondition(c.Status.Conditions, apiextensionsv1.Established)
	out := condition{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionFalse}
	switch {
	case old != nil && (old.Status == apiextensionsv1.ConditionTrue || conflicts):
		return *old
	case conflicts:
		out.Reason, out.Message = "NotAccepted", "not all names are accepted"
	case hasBadCABundle(c):
		out.Reason, out.Message = "InvalidCABundle", "The conversion webhook CABundle is invalid"
	default:
		out.Status, out.Reason, out.Message = apiextensionsv1.ConditionTrue, "InitialNamesAccepted", "the initial names have been accepted"
	}
	return out
}

// hasBadCABundle reports whether the CA bundle of a definition's conversion webhook contains no valid certificate.
func hasBadCABundle(c *crd) bool {
	v := c.Spec.Conversion
	if v == nil || v.Webhook == nil || v.Webhook.ClientConfig == nil || len(v.Webhook.ClientConfig.CABundle) == 0 {
		return false
	}
	return !x509.NewCertPool().AppendCertsFromPEM(v.Webhook.ClientConfig.CABundle)
}

// approval returns the condition KubernetesAPIApprovalPolicyConformant, or nil for groups that are not protected.
func approval(c *crd) *condition {
	if !apihelpers.IsProtectedCommunityGroup(c.Spec.Group) {
		return nil
	}
	state, message := apihelpers.GetAPIApprovalState(c.Annotations)
	out := &condition{Type: apiextensionsv1.KubernetesAPIApprovalPolicyConformant, Status: apiextensionsv1.ConditionFalse, Message: message}
	switch state {
	case apihelpers.APIApproved:
		out.Status, out.Reason = apiextensionsv1.ConditionTrue, "ApprovedAnnotation"
	case apihelpers.APIApprovalBypassed:
		out.Reason = "UnapprovedAnnotation"
	case apihelpers.APIApprovalMissing:
		out.Reason = "MissingAnnotation"
	default:
		out.Reason = "InvalidAnnotation"
	}
	return out
}

// mayBeNonStructural reports whether the schemas of a definition must be checked, which is slow. The server admits a
// non-structural schema only if the definition had one before, and then it has the condition NonStructuralSchema.
func mayBeNonStructural(c *crd) bool {
	return c.Spec.PreserveUnknownFields || findCondition(c.Status.Conditions, apiextensionsv1.NonStructuralSchema) != nil ||
		findCondition(c.Status.Conditions, apiextensionsv1.NamesAccepted) == nil
}

// nonStructural returns the condition NonStructuralSchema, or nil if all schemas are structural.
func nonStructural(c *crd) *condition {
	out := &condition{Type: apiextensionsv1.NonStructuralSchema, Status: apiextensionsv1.ConditionUnknown, Reason: "StructuralError"}
	var errs field.ErrorList
	if c.Spec.PreserveUnknownFields {
		errs = append(errs, field.Invalid(field.NewPath("spec", "preserveUnknownFields"), true, "must be false"))
	}
	for i, v := range c.Spec.Versions {
		if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			continue
		}
		var internal apiextensions.CustomResourceValidation
		err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(v.Schema, &internal, nil)
		var s *structuralschema.Structural
		if err == nil {
			s, err = structuralschema.NewStructural(internal.OpenAPIV3Schema)
		}
		if err != nil {
			out.Message = fmt.Sprintf("failed to check validation schema for version %s: %v", v.Name, err)
			return out
		}
		path := field.NewPath("spec", "versions").Index(i).Child("schema", "openAPIV3Schema")
		errs = append(errs, structuralschema.ValidateStructural(path, s)...)
	}
	if len(errs) == 0 {
		return nil
	}
	out.Status, out.Reason, out.Message = apiextensionsv1.ConditionTrue, "Violations", errs.ToAggregate().Error()
	return out
}

// findCondition returns the condition of a type, or nil.
func findCondition(list []condition, t apiextensionsv1.CustomResourceDefinitionConditionType) *condition {
	if i := slices.IndexFunc(list, func(c condition) bool { return c.Type == t }); i >= 0 {
		return &list[i]
	}
	return nil
}

// isTrue reports whether a definition has a condition with status True.
func isTrue(c *crd, t apiextensionsv1.CustomResourceDefinitionConditionType) bool {
	found := findCondition(c.Status.Conditions, t)
	return found != nil && found.Status == apiextensionsv1.ConditionTrue
}

// setCondition returns a copy of conditions in which the one of c's type is replaced by c. The transition time changes with the status.
func setCondition(list []condition, c condition, now metav1.Time) []condition {
	c.LastTransitionTime = now
	i := slices.IndexFunc(list, func(o condition) bool { return o.Type == c.Type })
	if i < 0 {
		return append(slices.Clip(list), c)
	}
	if old := list[i]; old.Status == c.Status && !old.LastTransitionTime.IsZero() {
		c.LastTransitionTime = old.LastTransitionTime
	}
	list = slices.Clone(list)
	list[i] = c
	return list
}

// sameConditions compares lists of conditions without their transition times.
func sameConditions(a, b []condition) bool {
	return slices.EqualFunc(a, b, func(x, y condition) bool {
		return x.Type == y.Type && x.Status == y.Status && x.Reason == y.Reason && x.Message == y.Message
	})
}
