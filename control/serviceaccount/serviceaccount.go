// Package serviceaccount keeps the ServiceAccount "default" in every namespace.
package serviceaccount

import (
	"context"
	"iter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control"
	"proa.dev/control/lib/namespaceobject"
	"proa.dev/kinds/kind"
)

// Controller returns the controller.
func Controller() control.Controller {
	namespaces, accounts := schema.GroupResource{Resource: "namespaces"}, schema.GroupResource{Resource: "serviceaccounts"}
	return control.Controller{
		Name: "service-account-controller", For: namespaces, Writes: []control.Write{{On: accounts, Do: "create"}},
		Triggers: []control.Trigger{{On: accounts, Keys: func(_ *control.Cluster, o kind.Object) iter.Seq[control.Key] {
			return func(yield func(control.Key) bool) {
				if o.GetName() == "default" {
					yield(control.Key{Name: o.GetNamespace()})
				}
			}
		}}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			if !namespaceobject.IsActive(c.View(namespaces), k.Name) {
				return 0, nil
			}
			if _, found := c.View(accounts).Get(k.Name, "default"); found {
				return 0, nil
			}
			_, err := c.Create(ctx, accounts, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: k.Name, Name: "default"}})
			return 0, control.IgnoreObsolete(err)
		},
	}
}
