package definition

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

// accepted is the condition NamesAccepted.
func accepted(c *conflict) condition {
	if c != nil {
		return condition{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionFalse, Reason: c.reason, Message: c.err.Error()}
	}
	return condition{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue, Reason: "NoConflicts", Message: "no conflicts found"}
}

// established is the condition Established. A resource that was once served stays so: what it has lost is only names it asked for later.
func established(c *crd, conflicts bool) condition {
	old := find(c.Status.Conditions, apiextensionsv1.Established)
	out := condition{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionFalse}
	switch {
	case old != nil && (old.Status == apiextensionsv1.ConditionTrue || conflicts):
		return *old
	case conflicts:
		out.Reason, out.Message = "NotAccepted", "not all names are accepted"
	case badCABundle(c):
		out.Reason, out.Message = "InvalidCABundle", "The conversion webhook CABundle is invalid"
	default:
		out.Status, out.Reason, out.Message = apiextensionsv1.ConditionTrue, "InitialNamesAccepted", "the initial names have been accepted"
	}
	return out
}

// badCABundle says that the conversion webhook of a definition could never be trusted.
func badCABundle(c *crd) bool {
	v := c.Spec.Conversion
	if v == nil || v.Webhook == nil || v.Webhook.ClientConfig == nil || len(v.Webhook.ClientConfig.CABundle) == 0 {
		return false
	}
	return !x509.NewCertPool().AppendCertsFromPEM(v.Webhook.ClientConfig.CABundle)
}

// approval is the condition KubernetesAPIApprovalPolicyConformant, or nil for groups that are not Kubernetes' own.
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

// mayBeNonStructural says that the schemas of a definition must be checked, which takes long. The server admits a schema that is not
// structural only where the definition had such a one before, and that has been told in a condition.
func mayBeNonStructural(c *crd) bool {
	return c.Spec.PreserveUnknownFields || find(c.Status.Conditions, apiextensionsv1.NonStructuralSchema) != nil ||
		find(c.Status.Conditions, apiextensionsv1.NamesAccepted) == nil
}

// nonStructural is the condition NonStructuralSchema, or nil if all schemas are structural.
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

// find returns the condition of a type, or nil.
func find(list []condition, t apiextensionsv1.CustomResourceDefinitionConditionType) *condition {
	if i := slices.IndexFunc(list, func(c condition) bool { return c.Type == t }); i >= 0 {
		return &list[i]
	}
	return nil
}

// isTrue says that a definition has a condition, and that it holds.
func isTrue(c *crd, t apiextensionsv1.CustomResourceDefinitionConditionType) bool {
	found := find(c.Status.Conditions, t)
	return found != nil && found.Status == apiextensionsv1.ConditionTrue
}

// set returns conditions with a new one in the place of that of its type. Its time changes when its status does. The list that is given
// stays as it is.
func set(list []condition, c condition, now metav1.Time) []condition {
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

// sameConditions compares lists of conditions without their times.
func sameConditions(a, b []condition) bool {
	return slices.EqualFunc(a, b, func(x, y condition) bool {
		return x.Type == y.Type && x.Status == y.Status && x.Reason == y.Reason && x.Message == y.Message
	})
}
