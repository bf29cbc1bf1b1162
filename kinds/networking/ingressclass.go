package networking

import (
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/check"
)

// IngressClasses name the controllers that serve ingresses.
func IngressClasses() *kind.Def {
	return kind.Define(kind.Resource[networkingv1.IngressClass]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "IngressClass"},
			Plural:           "ingressclasses", Scope: kind.Cluster,
			Generation: true,
		},
		Spec: func(c *networkingv1.IngressClass) any { return &c.Spec },
		Default: func(c *networkingv1.IngressClass) {
			if p := c.Spec.Parameters; p != nil && p.Scope == nil {
				p.Scope = new(networkingv1.IngressClassParametersReferenceScopeCluster)
			}
		},
		Validate: validateIngressClass,
		Columns: []kind.Column[networkingv1.IngressClass]{
			{Name: "Name", Format: "name", Description: kind.NameColumn[networkingv1.IngressClass]().Description,
				Value: func(c *networkingv1.IngressClass) any {
					if c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
						return c.Name + " (default)"
					}
					return c.Name
				}},
			{Name: "Controller", Description: "Controller that is responsible for handling this class",
				Value: func(c *networkingv1.IngressClass) any { return c.Spec.Controller }},
			{Name: "Parameters", Description: "A reference to a resource with additional parameters",
				Value: func(c *networkingv1.IngressClass) any {
					p := c.Spec.Parameters
					switch {
					case p == nil:
						return "<none>"
					case p.APIGroup != nil:
						return p.Kind + "." + *p.APIGroup + "/" + p.Name
					}
					return p.Kind + "/" + p.Name
				}},
			kind.AgeColumn[networkingv1.IngressClass](),
		},
	})
}

const maxControllerName = 250

func validateIngressClass(c, old *networkingv1.IngressClass) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec")
	if old != nil {
		errs = append(errs, check.Immutable(c.Spec.Controller, old.Spec.Controller, path.Child("controller"))...)
	}
	if len(c.Spec.Controller) > maxControllerName {
		errs = append(errs, field.TooLong(path.Child("controller"), "", maxControllerName))
	}
	errs = append(errs, utilvalidation.IsDomainPrefixedPath(path.Child("controller"), c.Spec.Controller)...)
	if c.Spec.Parameters != nil {
		errs = append(errs, validateParameters(c.Spec.Parameters, path.Child("parameters"))...)
	}
	return errs
}

func validateParameters(p *networkingv1.IngressClassParametersReference, path *field.Path) field.ErrorList {
	var errs, last field.ErrorList
	if p.APIGroup != nil {
		errs = append(errs, check.DNSSubdomain(*p.APIGroup, path.Child("apiGroup"))...)
	}
	if p.Kind == "" {
		last = append(last, field.Required(path.Child("kind"), ""))
	} else {
		errs = append(errs, check.RequiredPathSegment(p.Kind, path.Child("kind"), "")...)
	}
	if p.Name == "" {
		last = append(last, field.Required(path.Child("name"), ""))
	} else {
		errs = append(errs, check.RequiredPathSegment(p.Name, path.Child("name"), "")...)
	}
	namespace := path.Child("namespace")
	switch {
	case p.Scope == nil:
		errs = append(errs, field.Required(path.Child("scope"), ""))
	case *p.Scope == networkingv1.IngressClassParametersReferenceScopeNamespace && p.Namespace == nil:
		errs = append(errs, field.Required(namespace, "`parameters.scope` is set to 'Namespace'"))
	case *p.Scope == networkingv1.IngressClassParametersReferenceScopeNamespace:
		errs = append(errs, check.Messages(*p.Namespace, namespace, validation.ValidateNamespaceName(*p.Namespace, false))...)
	case *p.Scope == networkingv1.IngressClassParametersReferenceScopeCluster:
		if p.Namespace != nil {
			errs = append(errs, field.Forbidden(namespace, "`parameters.scope` is set to 'Cluster'"))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("scope"), *p.Scope,
			[]string{networkingv1.IngressClassParametersReferenceScopeCluster, networkingv1.IngressClassParametersReferenceScopeNamespace}))
	}
	return append(errs, last...)
}
