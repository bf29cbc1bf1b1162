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

// isAllowed asks the authorizer about the user of the request, unless the user is in the group that may do everything.
func isAllowed(ctx context.Context, d kind.Server, a authorizationv1.ResourceAttributes) bool {
	u := d.User()
	if slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		return true
	}
	return d.ReviewAccess(ctx, kind.AccessReview(u, &a)).Allowed
}

// paramResource returns the resource of a kind of parameters, which the user must be allowed to read: all resources as far as the kind is
// unknown.
func (h Hooks) paramResource(k *admissionv1.ParamKind) (a authorizationv1.ResourceAttributes, parsed, resolved bool) {
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

// allowParamKind refuses a policy whose author may not read the parameters, who could otherwise learn through it what they say.
func (h Hooks) allowParamKind(ctx context.Context, d kind.Server, k, old *admissionv1.ParamKind) field.ErrorList {
	if k == nil || old != nil && *old == *k {
		return nil
	}
	a, _, _ := h.paramResource(k)
	a.Verb, a.Name, a.Namespace = "get", "*", "*"
	if isAllowed(ctx, d, a) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", "paramKind"),
		fmt.Sprintf(`user %v must have "get" permission on all objects of the referenced paramKind (kind=%s, apiVersion=%s)`, d.User(), k.Kind, k.APIVersion))}
}

// allowParamRef is allowParamKind for a binding. param finds the kind of the policy's parameters.
func (h Hooks) allowParamRef(ctx context.Context, d kind.Server, ref *admissionv1.ParamRef, policy string,
	param func() (*admissionv1.ParamKind, error)) field.ErrorList {
	if ref == nil {
		return nil
	}
	a, parsed, resolved := authorizationv1.ResourceAttributes{Group: "*", Version: "*", Resource: "*"}, true, true
	k, err := param()
	if err == nil && k != nil {
		a, parsed, resolved = h.paramResource(k)
	}
	a.Verb, a.Name, a.Namespace = "get", ref.Name, ref.Namespace
	if ref.Name == "" {
		a.Verb = "list"
	}
	if isAllowed(ctx, d, a) {
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
