package networking

import (
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/check"
)

// IPAddresses are the addresses that services hold.
func IPAddresses() *kind.Def {
	return kind.Define(kind.Resource[networkingv1.IPAddress]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "IPAddress"}, Plural: "ipaddresses",
			Short: []string{"ip"}, Scope: kind.Cluster,
			Older:        kind.SameLayout("v1beta1"),
			NoNameSuffix: true,
		},
		Name: func(name string, _ bool) []string {
			var texts []string
			for _, err := range utilvalidation.IsValidIP(&field.Path{}, name) {
				texts = append(texts, err.Detail)
			}
			return texts
		},
		Validate: validateIPAddress,
		Columns: []kind.Column[networkingv1.IPAddress]{
			kind.NameColumn[networkingv1.IPAddress](),
			{Name: "ParentRef", Description: networkingv1.IPAddressSpec{}.SwaggerDoc()["parentRef"], Value: parent},
			{Value: func(a *networkingv1.IPAddress) any { return kind.Age(a.CreationTimestamp) }},
		},
	})
}

func parent(a *networkingv1.IPAddress) any {
	p := a.Spec.ParentRef
	if p == nil {
		return "<none>"
	}
	cell := strings.ToLower(schema.GroupResource{Group: p.Group, Resource: p.Resource}.String())
	if p.Namespace != "" {
		cell += "/" + p.Namespace
	}
	return cell + "/" + p.Name
}

func validateIPAddress(a, old *networkingv1.IPAddress) field.ErrorList {
	path, p := field.NewPath("spec", "parentRef"), a.Spec.ParentRef
	if p == nil {
		if old != nil && old.Spec.ParentRef != nil {
			return field.ErrorList{field.Required(path, ""), check.ImmutableError(path)}
		}
		return field.ErrorList{field.Required(path, "")}
	}
	// If a rule of declarative validation fails, the older validation reports the fields below it.
	changed := old != nil && !equality.Semantic.DeepEqual(p, old.Spec.ParentRef)
	var errs, last field.ErrorList
	if p.Group != "" {
		errs = append(errs, check.DNSSubdomain(p.Group, path.Child("group"))...)
	}
	for _, f := range []struct{ name, value string }{{"resource", p.Resource}, {"name", p.Name}} {
		if f.value == "" && !changed {
			last = append(last, field.Required(path.Child(f.name), ""))
		} else {
			errs = append(errs, check.RequiredPathSegment(f.value, path.Child(f.name), "")...)
		}
	}
	if p.Namespace != "" {
		errs = append(errs, check.RequiredPathSegment(p.Namespace, path.Child("namespace"), "")...)
	}
	if changed {
		last = append(last, check.ImmutableError(path))
	}
	return append(errs, last...)
}
