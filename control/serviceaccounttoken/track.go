package serviceaccounttoken

import (
	"context"
	"iter"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

const (
	trackingMap = "kube-apiserver-legacy-service-account-token-tracking"
	trackingKey = "since"
)

// Tracker returns the controller that stores the day since which uses of tokens are tracked.
func Tracker() control.Controller {
	it := control.Key{Namespace: metav1.NamespaceSystem, Name: trackingMap}
	return control.Controller{
		Name: "legacy-service-account-token-tracking-controller", For: gr.ConfigMaps,
		Writes: []control.Write{{On: gr.ConfigMaps, Do: "create update"}},
		Of:     it,
		Triggers: []control.Trigger{{On: gr.Namespaces, Keys: func(_ *control.Cluster, o kind.Object) iter.Seq[control.Key] {
			return func(yield func(control.Key) bool) {
				if o.GetName() == it.Namespace {
					yield(it)
				}
			}
		}}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			today := time.Now().UTC().Format(time.DateOnly)
			have, found := control.Get[*corev1.ConfigMap](c, gr.ConfigMaps, k.Namespace, k.Name)
			if !found {
				_, err := c.Create(ctx, gr.ConfigMaps, &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name}, Data: map[string]string{trackingKey: today},
				})
				if apierrors.IsAlreadyExists(err) {
					return 0, nil
				}
				return 0, control.IgnoreNotFound(err)
			}
			if _, err := time.Parse(time.DateOnly, have.Data[trackingKey]); err == nil {
				return 0, nil
			}
			next := have.DeepCopy()
			if next.Data == nil {
				next.Data = map[string]string{}
			}
			next.Data[trackingKey] = today
			_, err := c.Update(ctx, gr.ConfigMaps, next, "")
			return 0, control.IgnoreNotFound(err)
		},
	}
}
