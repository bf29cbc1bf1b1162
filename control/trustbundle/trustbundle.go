// Package trustbundle keeps the ClusterTrustBundle with which whoever mounts it trusts the API server. Its name holds a hash
// of the certificates, so that a change of CA makes a new bundle; older ones of the signer go.
package trustbundle

import (
	"context"
	"crypto/sha256"
	"fmt"
	"iter"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

const signer = "kubernetes.io/kube-apiserver-serving"

// Controller returns the loop; bundle is the CA certificates of now in PEM.
func Controller(bundle func() string) control.Controller {
	return control.Controller{
		Name: "kube-apiserver-serving-clustertrustbundle-publisher", For: gr.ClusterTrustBundles, When: concerns,
		Writes: []control.Write{
			{On: gr.ClusterTrustBundles, Do: "create update delete"},
			{On: schema.GroupResource{Group: certificatesv1.GroupName, Resource: "signers"}, Do: "attest"},
		},
		Triggers: []control.Trigger{
			// There is always this namespace, so that its first event makes the first bundle.
			{On: gr.Namespaces, Keys: func(_ *control.Cluster, o kind.Object) iter.Seq[control.Key] {
				return func(yield func(control.Key) bool) {
					if o.GetName() == metav1.NamespaceSystem {
						yield(control.Key{Name: nameOf(bundle())})
					}
				}
			}},
		},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			have, _ := control.Get[*certificatesv1.ClusterTrustBundle](c, gr.ClusterTrustBundles, "", k.Name)
			return reconcile(ctx, c, have, k.Name, bundle())
		},
	}
}

// nameOf is the name of the bundle with some certificates.
func nameOf(bundle string) string {
	hash := sha256.Sum256([]byte(bundle))
	return fmt.Sprintf("%s:%x", strings.ReplaceAll(signer, "/", ":"), hash[:12])
}

// concerns leaves out the bundles of others.
func concerns(old, now kind.Object) bool {
	return ours(old) || ours(now)
}

func ours(o kind.Object) bool {
	b, ok := o.(*certificatesv1.ClusterTrustBundle)
	return ok && b.Spec.SignerName == signer
}

func reconcile(ctx context.Context, c *control.Cluster, have *certificatesv1.ClusterTrustBundle, name, bundle string) (again time.Duration, err error) {
	switch wanted := name == nameOf(bundle); {
	case wanted && have == nil:
		_, err = c.Create(ctx, gr.ClusterTrustBundles, &certificatesv1.ClusterTrustBundle{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: bundle},
		})
	case wanted && have.Spec.TrustBundle != bundle:
		next := have.DeepCopy()
		next.Spec.TrustBundle = bundle
		_, err = c.Update(ctx, gr.ClusterTrustBundles, next, "")
	case !wanted && have != nil && ours(have):
		if _, published := c.View(gr.ClusterTrustBundles).Get("", nameOf(bundle)); !published {
			return time.Second, nil // at no time there is none
		}
		err = c.Delete(ctx, gr.ClusterTrustBundles, "", name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(have.UID)}})
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return 0, nil
	}
	return 0, err
}
