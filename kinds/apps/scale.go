package apps

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/core"
	"proa.dev/kinds/kind"
)

// scaled is what the scale subresource shows and changes of a workload.
type scaled struct {
	replicas **int32
	selector *metav1.LabelSelector
	current  int32
}

func scale[T any, P interface {
	*T
	kind.Object
}](part func(*T) scaled) kind.Sub[T] {
	return core.Scale[T, P](core.Scaled[T]{
		Replicas: func(o *T) **int32 { return part(o).replicas },
		Current:  func(o *T) int32 { return part(o).current },
		Selector: func(o *T) (string, error) {
			selector, err := metav1.LabelSelectorAsSelector(part(o).selector)
			if err != nil {
				return "", err
			}
			return selector.String(), nil
		},
	})
}
