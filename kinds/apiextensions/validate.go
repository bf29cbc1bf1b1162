package apiextensions

import (
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Hooks are functions of the server that the kind needs. The zero value validates names only.
type Hooks struct {
	// Validate checks a definition and its change; see server/crdvalidation, whose functions fit here.
	Validate func(c, old *crd) field.ErrorList
	Warn     func(c, old *crd) []string
}

func (h Hooks) validate(c, old *crd) field.ErrorList {
	if h.Validate != nil {
		return h.Validate(c, old)
	}
	var errs field.ErrorList
	if g := c.GenerateName; g != "" && g != c.Spec.Names.Plural+"."+c.Spec.Group {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "generateName"), g, `must be spec.names.plural+"."+spec.group`))
	}
	if old == nil && c.Name != "" && c.Name != c.Spec.Names.Plural+"."+c.Spec.Group {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), c.Name, `must be spec.names.plural+"."+spec.group`))
	}
	errs = append(errs, validateNames(&c.Spec.Names, field.NewPath("spec", "names"))...)
	return append(errs, validateCRDStatus(c, nil)...)
}

func (h Hooks) warn(c, old *crd) []string {
	if h.Warn == nil {
		return nil
	}
	return h.Warn(c, old)
}

func validateCRDStatus(c, _ *crd) field.ErrorList {
	return validateNames(&c.Status.AcceptedNames, field.NewPath("status", "acceptedNames"))
}

// validateNames checks the names that are set.
func validateNames(n *apiextensionsv1.CustomResourceDefinitionNames, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	label := func(value, prefix string, at *field.Path) {
		if flaws := validation.IsDNS1035Label(strings.ToLower(value)); prefix != "" && len(flaws) > 0 {
			errs = append(errs, field.Invalid(at, value, prefix+strings.Join(flaws, ",")))
		} else if flaws := validation.IsDNS1035Label(value); prefix == "" && len(flaws) > 0 {
			errs = append(errs, field.Invalid(at, value, strings.Join(flaws, ",")))
		}
	}
	const mixed = "may have mixed case, but should otherwise match: "
	for _, f := range []struct{ value, prefix, name string }{
		{n.Plural, "", "plural"}, {n.Singular, "", "singular"}, {n.Kind, mixed, "kind"}, {n.ListKind, mixed, "listKind"},
	} {
		if f.value != "" {
			label(f.value, f.prefix, path.Child(f.name))
		}
	}
	for i, s := range n.ShortNames {
		label(s, "", path.Child("shortNames").Index(i))
	}
	if n.Kind != "" && n.Kind == n.ListKind {
		errs = append(errs, field.Invalid(path.Child("listKind"), n.ListKind, "kind and listKind may not be the same"))
	}
	for i, c := range n.Categories {
		label(c, "", path.Child("categories").Index(i))
	}
	return errs
}

// beginDeletion adds the finalizer that holds a definition until its objects are deleted.
func beginDeletion(c *crd) {
	if slices.ContainsFunc(c.Status.Conditions, func(x apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return x.Type == apiextensionsv1.Terminating && x.Status == apiextensionsv1.ConditionTrue
	}) {
		return
	}
	if !slices.Contains(c.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer) {
		c.Finalizers = append(slices.Clip(c.Finalizers), apiextensionsv1.CustomResourceCleanupFinalizer)
	}
	c.Status.Conditions = append(slices.DeleteFunc(slices.Clone(c.Status.Conditions),
		func(x apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return x.Type == apiextensionsv1.Terminating
		}), apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue, LastTransitionTime: metav1.Now(),
		Reason: "InstanceDeletionPending", Message: "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
	})
	// Deletions of definitions have no grace period and do not increment the generation.
	c.DeletionGracePeriodSeconds = nil
	c.Generation = max(1, c.Generation-1)
}
