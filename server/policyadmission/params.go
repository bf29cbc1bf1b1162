package policyadmission

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
	"proa.dev/server/admissionmatch"
	"proa.dev/server/objectversion"
)

// paramDef returns the resource of a policy's parameters; nil for a policy without. An error means that the policy
// cannot be used.
func paramDef(a *kind.Admission, k *admissionv1.ParamKind) (*kind.Def, error) {
	if k == nil {
		return nil, nil
	}
	gv, err := schema.ParseGroupVersion(k.APIVersion)
	if err != nil {
		return nil, fmt.Errorf("failed to parse paramKind APIVersion: %w", err)
	}
	gvk := gv.WithKind(k.Kind)
	def := a.Kind(gvk)
	if def == nil || def.Transient || def.Computed != nil {
		return nil, fmt.Errorf("failed to find resource referenced by paramKind: '%v'", gvk)
	}
	return def, nil
}

// paramsFor returns the parameters that a policy is evaluated with under a binding; none if the binding does not match
// the write.
func (r *request) paramsFor(ctx context.Context, def *kind.Def, b *binding) ([]runtime.Object, error) {
	if b.criteria != nil {
		if matched, err := b.criteria.Matches(ctx, r.Admission); err != nil || matched == nil {
			return nil, err
		}
	}
	return r.paramsOf(ctx, def, b.params)
}

// paramsOf returns the parameters that a binding selects; the policy is evaluated once for each. A binding without a
// reference selects a single nil. No parameters and no error mean that the policy is not evaluated.
func (r *request) paramsOf(ctx context.Context, def *kind.Def, ref *admissionv1.ParamRef) ([]runtime.Object, error) {
	if def == nil || ref == nil {
		return []runtime.Object{nil}, nil
	}
	namespace := ""
	switch {
	case def.Scope == kind.Namespaced && ref.Namespace != "":
		namespace = ref.Namespace
	case def.Scope == kind.Namespaced:
		if namespace = admissionmatch.Namespace(r.Admission); namespace == "" {
			return nil, errors.New("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
		}
	case ref.Namespace != "":
		return nil, errors.New("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
	}
	found, err := r.findParams(ctx, def, ref, namespace)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 && ref.ParameterNotFoundAction != nil && *ref.ParameterNotFoundAction == admissionv1.DenyAction {
		return nil, errors.New("no params found for policy binding with `Deny` parameterNotFoundAction")
	}
	out := make([]runtime.Object, len(found))
	for i, o := range found {
		converted, err := convertParam(ctx, o, def)
		if err != nil {
			return nil, fmt.Errorf("failed to convert object version: %w", err)
		}
		out[i] = objectversion.WithKind(converted, def.GroupVersionKind)
	}
	return out, nil
}

// convertParam converts a parameter to the version that the policy names. Custom objects know the version they are in.
func convertParam(ctx context.Context, o kind.Object, def *kind.Def) (kind.Object, error) {
	if def.Convert != nil {
		return def.Convert(ctx, o, def.GroupVersion())
	}
	return kind.Convert(ctx, o, def.Storage(), def)
}

// findParams reads the parameters that a reference names or selects, in the storage version.
func (r *request) findParams(
	ctx context.Context, def *kind.Def, ref *admissionv1.ParamRef, namespace string,
) (found []kind.Object, err error) {
	resource := def.Storage().Resource()
	switch {
	case ref.Name != "" && ref.Selector != nil:
		return nil, errors.New("paramRef.name and paramRef.selector are mutually exclusive")
	case ref.Name != "":
		o, err := r.Server.Get(ctx, resource, namespace, ref.Name)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return []kind.Object{o}, nil
	case ref.Selector == nil:
		return nil, errors.New("one of name or selector must be provided")
	}
	selector, err := metav1.LabelSelectorAsSelector(ref.Selector)
	if err != nil {
		return nil, err
	}
	all, err := r.Server.List(ctx, resource, namespace)
	if err != nil {
		return nil, err
	}
	for o := range all {
		if selector.Matches(labels.Set(o.GetLabels())) {
			found = append(found, o)
		}
	}
	return found, nil
}
