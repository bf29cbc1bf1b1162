package admissionregistration

import (
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/kind"
)

// may asks whether the user has a right; those who may do anything are not asked about.
func may(ctx context.Context, d kind.Door, a authorizationv1.ResourceAttributes) bool {
	u := d.User()
	if slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		return true
	}
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: map[string]authorizationv1.ExtraValue{}, ResourceAttributes: &a,
	}
	for key, values := range u.GetExtra() {
		spec.Extra[key] = values
	}
	return d.ReviewAccess(ctx, spec).Allowed
}

// target is what a user must be allowed to read of a kind of parameters: everything, as far as the kind is unknown.
func (h Hooks) target(k *admissionv1.ParamKind) (a authorizationv1.ResourceAttributes, parsed, resolved bool) {
	a = authorizationv1.ResourceAttributes{Group: "*", Version: "*", Resource: "*"}
	gv, err := schema.ParseGroupVersion(k.APIVersion)
	if err != nil {
		return a, false, false
	}
	a.Group, a.Version = gv.Group, gv.Version
	if h.Resource == nil {
		return a, true, false
	}
	resource, found := h.Resource(gv.WithKind(k.Kind))
	if found {
		a.Resource = resource
	}
	return a, true, found
}

// allowParamKind lets nobody learn through a policy what they could not read.
func (h Hooks) allowParamKind(ctx context.Context, d kind.Door, k, old *admissionv1.ParamKind) field.ErrorList {
	if k == nil || old != nil && *old == *k {
		return nil
	}
	a, _, _ := h.target(k)
	a.Verb, a.Name, a.Namespace = "get", "*", "*"
	if may(ctx, d, a) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", "paramKind"),
		fmt.Sprintf(`user %v must have "get" permission on all objects of the referenced paramKind (kind=%s, apiVersion=%s)`, d.User(), k.Kind, k.APIVersion))}
}

func (h Hooks) allowValidatingPolicy(ctx context.Context, d kind.Door, p, old *admissionv1.ValidatingAdmissionPolicy) field.ErrorList {
	if old == nil {
		return h.allowParamKind(ctx, d, p.Spec.ParamKind, nil)
	}
	return h.allowParamKind(ctx, d, p.Spec.ParamKind, old.Spec.ParamKind)
}

func (h Hooks) allowMutatingPolicy(ctx context.Context, d kind.Door, p, old *admissionv1.MutatingAdmissionPolicy) field.ErrorList {
	if old == nil {
		return h.allowParamKind(ctx, d, p.Spec.ParamKind, nil)
	}
	return h.allowParamKind(ctx, d, p.Spec.ParamKind, old.Spec.ParamKind)
}

// allowParamRef does for a binding what allowParamKind does for a policy. param finds the kind of the policy's parameters.
func (h Hooks) allowParamRef(ctx context.Context, d kind.Door, ref *admissionv1.ParamRef, policy string, param func() (*admissionv1.ParamKind, error)) field.ErrorList {
	if ref == nil {
		return nil
	}
	a, parsed, resolved := authorizationv1.ResourceAttributes{Group: "*", Version: "*", Resource: "*"}, true, true
	k, err := param()
	if err == nil && k != nil {
		a, parsed, resolved = h.target(k)
	}
	a.Verb, a.Name, a.Namespace = "get", ref.Name, ref.Namespace
	if ref.Name == "" {
		a.Verb = "list"
	}
	if may(ctx, d, a) {
		return nil
	}
	u := d.User()
	const unknown = ` to determine minimum required permissions and user %v does not have "%v" permission for all groups, versions and resources`
	text := fmt.Sprintf(`user %v does not have "%v" permission on the object referenced by paramRef`, u, a.Verb)
	switch {
	case err != nil:
		text = fmt.Sprintf("unable to get policy %s"+unknown, policy, u, a.Verb)
	case !parsed:
		text = fmt.Sprintf("unable to parse paramKind %v"+unknown, k, u, a.Verb)
	case !resolved:
		text = fmt.Sprintf("unable to resolve paramKind %v"+unknown, k, u, a.Verb)
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", "paramRef"), text)}
}

func (h Hooks) allowValidatingBinding(ctx context.Context, d kind.Door, b, _ *admissionv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
	return h.allowParamRef(ctx, d, b.Spec.ParamRef, b.Spec.PolicyName, func() (*admissionv1.ParamKind, error) {
		o, err := d.Get(ctx, admissionv1.Resource("validatingadmissionpolicies"), "", b.Spec.PolicyName)
		if p, ok := o.(*admissionv1.ValidatingAdmissionPolicy); ok && err == nil {
			return p.Spec.ParamKind, nil
		}
		return nil, err
	})
}

func (h Hooks) allowMutatingBinding(ctx context.Context, d kind.Door, b, _ *admissionv1.MutatingAdmissionPolicyBinding) field.ErrorList {
	return h.allowParamRef(ctx, d, b.Spec.ParamRef, b.Spec.PolicyName, func() (*admissionv1.ParamKind, error) {
		o, err := d.Get(ctx, admissionv1.Resource("mutatingadmissionpolicies"), "", b.Spec.PolicyName)
		if p, ok := o.(*admissionv1.MutatingAdmissionPolicy); ok && err == nil {
			return p.Spec.ParamKind, nil
		}
		return nil, err
	})
}
