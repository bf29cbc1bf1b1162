package customresource

import (
	"fmt"
	"math"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
)

// splitPath splits the dotted path of a field.
func splitPath(dotted string) []string { return strings.Split(strings.TrimPrefix(dotted, "."), ".") }

// scaleSub returns the scale subresource.
func (v *version) scaleSub() *kind.SubDef {
	scale := v.scale()
	names, row := columns(scaleColumns(scale.StatusReplicasPath != ""))
	return &kind.SubDef{
		Name: "scale", Verbs: []string{"get", "patch", "update"},
		Body: &kind.Body{
			GroupVersionKind: autoscalingv1.SchemeGroupVersion.WithKind("Scale"), New: func() kind.Object { return &autoscalingv1.Scale{} },
			Columns: names, Row: row,
		},
		ReplicasPath: splitPath(scale.SpecReplicasPath),
		View: func(parent kind.Object) (kind.Object, error) {
			out, found, err := v.scaleOf(parent.(*unstructured.Unstructured))
			if err == nil && !found {
				err = apierrors.NewInternalError(fmt.Errorf("the spec replicas field %q does not exist", scale.SpecReplicasPath))
			}
			return out, err
		},
		Change: func(parent, body kind.Object) error {
			s, ok := body.(*autoscalingv1.Scale)
			if !ok {
				return apierrors.NewBadRequest(fmt.Sprintf("wrong object passed to Scale update: %v", body))
			}
			return unstructured.SetNestedField(parent.(*unstructured.Unstructured).Object, int64(s.Spec.Replicas),
				splitPath(scale.SpecReplicasPath)...)
		},
	}
}

// scaleOf returns the Scale of an object, and reports whether the object has a number of desired replicas.
func (v *version) scaleOf(u *unstructured.Unstructured) (*autoscalingv1.Scale, bool, error) {
	scale := v.scale()
	wanted, found, err := unstructured.NestedInt64(u.Object, splitPath(scale.SpecReplicasPath)...)
	if err != nil {
		return nil, false, err
	}
	current, _, err := unstructured.NestedInt64(u.Object, splitPath(scale.StatusReplicasPath)...)
	if err != nil {
		return nil, false, err
	}
	selector := ""
	if scale.LabelSelectorPath != nil && *scale.LabelSelectorPath != "" {
		if selector, _, err = unstructured.NestedString(u.Object, splitPath(*scale.LabelSelectorPath)...); err != nil {
			return nil, false, err
		}
	}
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name: u.GetName(), Namespace: u.GetNamespace(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
			CreationTimestamp: u.GetCreationTimestamp(),
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: int32(wanted)},
		Status: autoscalingv1.ScaleStatus{Replicas: int32(current), Selector: selector},
	}, found, nil
}

// validateScale checks that the fields which the Scale is made of have valid values.
func (v *version) validateScale(u *unstructured.Unstructured, spec bool) (errs field.ErrorList) {
	scale := v.scale()
	if scale == nil {
		return nil
	}
	number := func(dotted string) {
		n, _, err := unstructured.NestedInt64(u.Object, splitPath(dotted)...)
		at := field.NewPath(dotted)
		switch {
		case err != nil:
			errs = append(errs, field.Invalid(at, n, err.Error()))
		case n < 0:
			errs = append(errs, field.Invalid(at, n, "should be a non-negative integer"))
		case n > math.MaxInt32:
			errs = append(errs, field.Invalid(at, n, fmt.Sprintf("should be less than or equal to %v", math.MaxInt32)))
		}
	}
	if spec {
		number(scale.SpecReplicasPath)
	}
	number(scale.StatusReplicasPath)
	if p := scale.LabelSelectorPath; p != nil {
		if text, _, err := unstructured.NestedString(u.Object, splitPath(*p)...); err != nil {
			errs = append(errs, field.Invalid(field.NewPath(*p), text, err.Error()))
		}
	}
	return errs
}
