package mutate

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"

	"proa.dev/kinds/kind"
)

// newestDefault returns the default among classes: the newest that one of the annotations marks as such, and the first
// by name of several that are equally new.
func newestDefault[T kind.Object](classes []T, annotations ...string) kind.Object {
	var best kind.Object
	for _, c := range classes {
		marked := false
		for _, key := range annotations {
			marked = marked || c.GetAnnotations()[key] == "true"
		}
		if marked && (best == nil || isNewer(c, best)) {
			best = c
		}
	}
	return best
}

func isNewer(a, b kind.Object) bool {
	x, y := a.GetCreationTimestamp().Time, b.GetCreationTimestamp().Time
	if !x.Equal(y) {
		return x.After(y)
	}
	return a.GetName() < b.GetName()
}

// defaultIngressClass sets the default class on a new ingress that names none.
func defaultIngressClass(ctx context.Context, a *kind.Admission) error {
	ingress, ok := a.Object.(*networkingv1.Ingress)
	if !ok || !a.IsCreate() || ingress.Spec.IngressClassName != nil {
		return nil
	}
	if _, named := ingress.Annotations["kubernetes.io/ingress.class"]; named {
		return nil
	}
	classes, err := list[*networkingv1.IngressClass](ctx, a, networkingv1.GroupName, "ingressclasses", "")
	if err != nil {
		return a.Forbid(err)
	}
	if class := newestDefault(classes, networkingv1.AnnotationIsDefaultIngressClass); class != nil {
		ingress.Spec.IngressClassName = new(class.GetName())
	}
	return nil
}
