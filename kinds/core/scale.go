package core

import (
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
)

// Scaled is how the scale subresource reads and writes a workload.
type Scaled[T any] struct {
	// Replicas returns a pointer to the number of desired replicas in the spec.
	Replicas func(*T) **int32
	// Current returns the number of replicas in the status.
	Current func(*T) int32
	// Selector returns the label selector of the pods as text.
	Selector func(*T) (string, error)
}

// Scale returns the scale subresource of a workload.
func Scale[T any, P interface {
	*T
	kind.Object
}](s Scaled[T]) kind.Sub[T] {
	return kind.Sub[T]{
		Name: "scale",
		Body: &kind.Body{
			GroupVersionKind: autoscalingv1.SchemeGroupVersion.WithKind("Scale"),
			New:              func() kind.Object { return &autoscalingv1.Scale{} },
			Columns:          scaleColumns(),
			Row: func(o kind.Object) []any {
				s := o.(*autoscalingv1.Scale)
				return []any{s.Name, int64(s.Spec.Replicas), int64(s.Status.Replicas), kind.Age(s.CreationTimestamp)}
			},
		},
		View: func(parent *T) (kind.Object, error) {
			o := P(parent)
			selector, err := s.Selector(parent)
			if err != nil {
				return nil, err
			}
			view := &autoscalingv1.Scale{
				TypeMeta: metav1.TypeMeta{APIVersion: "autoscaling/v1", Kind: "Scale"},
				ObjectMeta: metav1.ObjectMeta{
					Name: o.GetName(), Namespace: o.GetNamespace(), UID: o.GetUID(),
					ResourceVersion: o.GetResourceVersion(), CreationTimestamp: o.GetCreationTimestamp(),
				},
				Status: autoscalingv1.ScaleStatus{Replicas: s.Current(parent), Selector: selector},
			}
			if n := *s.Replicas(parent); n != nil {
				view.Spec.Replicas = *n
			}
			return view, nil
		},
		Change: func(parent *T, body kind.Object) error {
			return changeScale(P(parent), s.Replicas(parent), body)
		},
	}
}

func changeScale(o kind.Object, replicas **int32, body kind.Object) error {
	scale, ok := body.(*autoscalingv1.Scale)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("expected input object type to be Scale, but %T", body))
	}
	errs := metavalidation.ValidateManagedFields(scale.ManagedFields, field.NewPath("metadata", "managedFields"))
	if n := scale.Spec.Replicas; n < 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "replicas"), int64(n), apivalidation.IsNegativeErrorMsg))
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: "autoscaling", Kind: "Scale"}, o.GetName(), errs)
	}
	*replicas = &scale.Spec.Replicas
	o.SetResourceVersion(scale.ResourceVersion)
	return nil
}

func scaleColumns() []metav1.TableColumnDefinition {
	meta := metav1.ObjectMeta{}.SwaggerDoc()
	return []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Description: meta["name"]},
		{Name: "Desired", Type: "integer", Description: autoscalingv1.ScaleSpec{}.SwaggerDoc()["replicas"]},
		{Name: "Available", Type: "integer", Description: autoscalingv1.ScaleStatus{}.SwaggerDoc()["replicas"]},
		{Name: "Age", Type: "string", Description: meta["creationTimestamp"]},
	}
}
