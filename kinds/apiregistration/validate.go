package apiregistration

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"proa.dev/kinds/lib/check"
)

func segmentName(name string, _ bool) []string { return content.IsPathSegmentName(name) }

func validateAPIService(s, _ *apiregistrationv1.APIService) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	want := s.Spec.Version + "." + s.Spec.Group
	if g := s.GenerateName; g != "" && g != want && len(content.IsPathSegmentName(g)) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "generateName"), g,
			fmt.Sprintf("must be `spec.version+\".\"+spec.group`: %q", want)))
	}
	if s.Name != want && len(content.IsPathSegmentName(s.Name)) == 0 && s.Name != "" {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), s.Name,
			fmt.Sprintf("must be `spec.version+\".\"+spec.group`: %q", want)))
	}
	if s.Spec.Group != "" {
		errs = append(errs, check.DNSSubdomain(s.Spec.Group, spec.Child("group"))...)
	} else if s.Spec.Version != "v1" {
		errs = append(errs, field.Required(spec.Child("group"), "only v1 may have an empty group and it better be legacy kube"))
	}
	errs = append(errs, check.Messages(s.Spec.Version, spec.Child("version"), validation.IsDNS1035Label(s.Spec.Version))...)
	if n := s.Spec.GroupPriorityMinimum; n <= 0 || n > 20000 {
		errs = append(errs, field.Invalid(spec.Child("groupPriorityMinimum"), n, "must be positive and less than 20000"))
	}
	if n := s.Spec.VersionPriority; n <= 0 || n > 1000 {
		errs = append(errs, field.Invalid(spec.Child("versionPriority"), n, "must be positive and less than 1000"))
	}
	if s.Spec.Service == nil {
		return append(errs, validateLocal(s, spec)...)
	}
	return append(errs, validateRemote(s, spec)...)
}

func validateLocal(s *apiregistrationv1.APIService, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	if n := len(s.Spec.CABundle); n != 0 {
		errs = append(errs, field.Invalid(spec.Child("caBundle"), fmt.Sprintf("%d bytes", n), "local APIServices may not have a caBundle"))
	}
	if s.Spec.InsecureSkipTLSVerify {
		errs = append(errs, field.Invalid(spec.Child("insecureSkipTLSVerify"), true,
			"local APIServices may not have insecureSkipTLSVerify"))
	}
	return errs
}

func validateRemote(s *apiregistrationv1.APIService, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	ref, path := s.Spec.Service, spec.Child("service")
	if ref.Namespace == "" {
		errs = append(errs, field.Required(path.Child("namespace"), ""))
	}
	if ref.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	var port int32
	if ref.Port != nil {
		port = *ref.Port
	}
	if messages := validation.IsValidPortNum(int(port)); messages != nil {
		errs = append(errs, field.Invalid(path.Child("port"), port, "port is not valid: "+strings.Join(messages, ", ")))
	}
	if s.Spec.InsecureSkipTLSVerify && len(s.Spec.CABundle) > 0 {
		errs = append(errs, field.Invalid(spec.Child("insecureSkipTLSVerify"), true, "may not be true if caBundle is present"))
	}
	return errs
}

func validateAPIServiceStatus(s, _ *apiregistrationv1.APIService) field.ErrorList {
	known := []apiregistrationv1.ConditionStatus{apiregistrationv1.ConditionTrue, apiregistrationv1.ConditionFalse,
		apiregistrationv1.ConditionUnknown}
	var errs field.ErrorList
	for i, c := range s.Status.Conditions {
		if !slices.Contains(known, c.Status) {
			errs = append(errs, field.NotSupported(field.NewPath("status", "conditions").Index(i).Child("status"), c.Status, known))
		}
	}
	return errs
}
