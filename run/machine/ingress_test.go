package machine

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"proa.dev/network/ingress"
	"proa.dev/proatest"
)

// TestIngressClass checks that the class is created once, and is the default only if there is no default class yet.
func TestIngressClass(t *testing.T) {
	admin := proatest.Start(t, proatest.Memory(), proatest.Alone()).Client
	isDefault := func(name string) string {
		t.Helper()
		o, err := admin.Get(t.Context(), ingress.Classes(), "", name, "")
		if err != nil {
			t.Fatal(err)
		}
		if c := o.(*networkingv1.IngressClass); c.Spec.Controller != ingress.Controller {
			t.Errorf("the controller of %s is %s", name, c.Spec.Controller)
		}
		return o.GetAnnotations()[networkingv1.AnnotationIsDefaultIngressClass]
	}
	for _, name := range []string{"proa", "proa", "second"} {
		if err := createIngressClass(t.Context(), admin, name); err != nil {
			t.Fatal(err)
		}
	}
	if isDefault("proa") != "true" || isDefault("second") != "" {
		t.Errorf("the first is %q, the second %q", isDefault("proa"), isDefault("second"))
	}
	// If a user removes the annotation, the next start does not add it again.
	o, err := admin.Get(t.Context(), ingress.Classes(), "", "proa", "")
	if err != nil {
		t.Fatal(err)
	}
	o.SetAnnotations(nil)
	if _, err := admin.Update(t.Context(), ingress.Classes(), o, ""); err != nil {
		t.Fatal(err)
	}
	if err := createIngressClass(t.Context(), admin, "proa"); err != nil {
		t.Fatal(err)
	}
	if got := isDefault("proa"); got != "" {
		t.Errorf("it is the default again: %q", got)
	}
}
