// Package bootstraptoken has the controllers of bootstrap tokens, by which machines join the cluster. The signer signs the
// kubeconfig in the ConfigMap kube-public/cluster-info with every token that allows it, so that a machine that knows only a
// token can verify the kubeconfig. The cleaner deletes expired tokens.
package bootstraptoken

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

// Signer returns the controller that signs the kubeconfig in cluster-info.
func Signer() control.Controller {
	info := control.Key{Namespace: metav1.NamespacePublic, Name: "cluster-info"}
	return control.Controller{
		Name: "bootstrap-signer", For: gr.ConfigMaps, Writes: []control.Write{{On: gr.ConfigMaps, Do: "update"}},
		Of: info,
		Triggers: []control.Trigger{{On: gr.Secrets, When: concernsToken, Keys: func(*control.Cluster, kind.Object) iter.Seq[control.Key] {
			return func(yield func(control.Key) bool) { yield(info) }
		}}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			have, found := control.Get[*corev1.ConfigMap](c, gr.ConfigMaps, k.Namespace, k.Name)
			if !found {
				return 0, nil
			}
			data, again := signedData(have.Data, control.List[*corev1.Secret](c, gr.Secrets, metav1.NamespaceSystem), time.Now())
			if data == nil {
				return again, nil
			}
			next := have.DeepCopy()
			next.Data = data
			_, err := c.Update(ctx, gr.ConfigMaps, next, "")
			if apierrors.IsNotFound(err) {
				return 0, nil
			}
			return again, err
		},
	}
}

// Cleaner returns the controller that deletes expired tokens.
func Cleaner() control.Controller {
	return control.Controller{
		Name: "token-cleaner", For: gr.Secrets, Writes: []control.Write{{On: gr.Secrets, Do: "delete"}},
		When: func(_, now kind.Object) bool { return isToken(now) },
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			token, found := control.Get[*corev1.Secret](c, gr.Secrets, k.Namespace, k.Name)
			if !found || !isToken(token) || token.DeletionTimestamp != nil {
				return 0, nil
			}
			left, expired := expiration(token, time.Now())
			if !expired {
				return left, nil
			}
			err := c.Delete(ctx, gr.Secrets, k.Namespace, k.Name, metav1.DeleteOptions{
				// A token may have been prolonged, which the view does not show yet.
				Preconditions: &metav1.Preconditions{UID: new(token.UID), ResourceVersion: new(token.ResourceVersion)},
			})
			if apierrors.IsNotFound(err) {
				return 0, nil
			}
			return 0, err
		},
	}
}

func concernsToken(old, now kind.Object) bool { return isToken(old) || isToken(now) }

func isToken(o kind.Object) bool {
	s, ok := o.(*corev1.Secret)
	return ok && s.Type == corev1.SecretTypeBootstrapToken && s.Namespace == metav1.NamespaceSystem
}
