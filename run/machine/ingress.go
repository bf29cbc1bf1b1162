package machine

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/network/ingress"
)

// createIngressClass creates the IngressClass of the settings, so that it exists when the server is ready.
func (s *Machine) createIngressClass(ctx context.Context) {
	if !s.ServesIngresses() {
		return
	}
	if err := createIngressClass(ctx, s.OwnClient(), s.Ingress.Class); err != nil {
		s.Log().ErrorContext(ctx, "the IngressClass cannot be created", "class", s.Ingress.Class, "err", err)
	}
}

// createIngressClass creates the IngressClass if there is none of its name. It becomes the default only if there is no other
// default: of two defaults the newer one counts, and an existing choice must not change.
func createIngressClass(ctx context.Context, c client.Client, name string) error {
	view, err := c.View(ctx, ingress.Classes())
	if err != nil {
		return err
	}
	if err := view.Reach(ctx, 0); err != nil {
		return err
	}
	class := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: networkingv1.IngressClassSpec{Controller: ingress.Controller}}
	def := true
	for o := range view.List("") {
		if o.GetName() == name {
			return nil
		}
		def = def && o.GetAnnotations()[networkingv1.AnnotationIsDefaultIngressClass] != "true"
	}
	if def {
		class.Annotations = map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"}
	}
	if _, err := c.Create(ctx, ingress.Classes(), class); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}
