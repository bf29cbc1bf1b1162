package storagemigration

import (
	"strings"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/lib/check"
)

func validateMigration(m, old *storagemigrationv1.StorageVersionMigration) field.ErrorList {
	path, r := field.NewPath("spec", "resource"), m.Spec.Resource
	var errs field.ErrorList
	if r.Resource == "" {
		errs = append(errs, field.Required(path.Child("resource"), "resource is required to be set"))
	} else if flaws := validation.IsDNS1035Label(r.Resource); len(flaws) > 0 {
		errs = append(errs, field.Invalid(path.Child("resource"), r.Resource, strings.Join(flaws, ",")))
	}
	if r.Group != "" {
		if flaws := validation.IsDNS1123Subdomain(r.Group); len(flaws) > 0 {
			errs = append(errs, field.Invalid(path.Child("group"), r.Group, strings.Join(flaws, ",")))
		}
	}
	if old != nil {
		errs = append(errs, check.ImmutableStruct(m.Spec, old.Spec, field.NewPath("spec"))...)
	}
	return errs
}

func validateMigrationStatus(m, old *storagemigrationv1.StorageVersionMigration) field.ErrorList {
	path, version := field.NewPath("status"), m.Status.ResourceVersion
	var errs field.ErrorList
	if version != "" {
		if _, err := resourceversion.CompareResourceVersion(version, version); err != nil {
			errs = append(errs, field.Invalid(path.Child("resourceVersion"), version, err.Error()))
		}
	}
	conditions := path.Child("conditions")
	errs = append(errs, metav1validation.ValidateConditions(m.Status.Conditions, conditions)...)
	if was := old.Status.ResourceVersion; was != "" && was != version {
		errs = append(errs, field.Invalid(path.Child("resourceVersion"), version, "field is immutable"))
	}
	succeeded, failed := storagemigrationv1.MigrationSucceeded, storagemigrationv1.MigrationFailed
	for _, rule := range []struct {
		broken bool
		text   string
	}{
		{hasTrueCondition(m, succeeded) && hasTrueCondition(m, failed),
			"Both success and failed conditions cannot be true at the same time"},
		{hasTrueCondition(old, succeeded) && !hasTrueCondition(m, succeeded), "Success condition cannot be set to false once it is true"},
		{hasTrueCondition(old, failed) && !hasTrueCondition(m, failed), "Failed condition cannot be set to false once it is true"},
	} {
		if rule.broken {
			errs = append(errs, field.Invalid(conditions, m.Status.Conditions, rule.text))
		}
	}
	return errs
}

func hasTrueCondition(m *storagemigrationv1.StorageVersionMigration, t storagemigrationv1.MigrationConditionType) bool {
	c := meta.FindStatusCondition(m.Status.Conditions, string(t))
	return c != nil && c.Status == metav1.ConditionTrue
}
