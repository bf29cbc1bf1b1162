// Package trustbundle keeps the ClusterTrustBundles with which whoever mounts them trusts the API server, or the agents of nodes. The name of one
// holds a hash of the certificates, so that a change of CA makes a new bundle; older ones of the signer go.
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

// signer is who vouches for the certificates that a bundle is for.
type signer string

// APIServer returns the loop for the certificate of the API server; bundle is the CA certificates of now in PEM.
func APIServer(bundle func() string) control.Controller {
	return signer("kubernetes.io/kube-apiserver-serving").controller("kube-apiserver-serving-clustertrustbundle-publisher", bundle)
}

// Agents returns the loop for the certificates that agents serve with. Upstream has none, since there nobody knows who signs them; metrics-server and
// the like verify nodes with it.
func Agents(bundle func() string) control.Controller {
	return signer(certificatesv1.KubeletServingSignerName).controller("kubelet-serving-clustertrustbundle-publisher", bundle)
}

func (s signer) controller(name string, bundle func() string) control.Controller {
	return control.Controller{
		Name: name, For: gr.ClusterTrustBundles, When: s.concerns,
		Writes: []control.Write{
			{On: gr.ClusterTrustBundles, Do: "create update delete"},
			{On: schema.GroupResource{Group: certificatesv1.GroupName, Resource: "signers"}, Do: "attest"},
		},
		Triggers: []control.Trigger{
			// There is always this namespace, so that its first event makes the first bundle.
			{On: gr.Namespaces, Keys: func(_ *control.Cluster, o kind.Object) iter.Seq[control.Key] {
				return func(yield func(control.Key) bool) {
					if o.GetName() == metav1.NamespaceSystem {
						yield(control.Key{Name: s.nameOf(bundle())})
					}
				}
			}},
		},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			have, _ := control.Get[*certificatesv1.ClusterTrustBundle](c, gr.ClusterTrustBundles, "", k.Name)
			return s.reconcile(ctx, c, have, k.Name, bundle())
		},
	}
}

// nameOf is the name of the bundle with some certificates.
func (s signer) nameOf(bundle string) string {
	hash := sha256.Sum256([]byte(bundle))
	return fmt.Sprintf("%s:%x", strings.ReplaceAll(string(s), "/", ":"), hash[:12])
}

// concerns leaves out the bundles of others.
func (s signer) concerns(old, now kind.Object) bool {
	return s.ours(old) || s.ours(now)
}

func (s signer) ours(o kind.Object) bool {
	b, ok := o.(*certificatesv1.ClusterTrustBundle)
	return ok && b.Spec.SignerName == string(s)
}

func (s signer) reconcile(ctx context.Context, c *control.Cluster, have *certificatesv1.ClusterTrustBundle, name, bundle string) (again time.Duration, err error) {
	switch wanted := name == s.nameOf(bundle); {
	case wanted && have == nil:
		_, err = c.Create(ctx, gr.ClusterTrustBundles, &certificatesv1.ClusterTrustBundle{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: string(s), TrustBundle: bundle},
		})
	case wanted && have.Spec.TrustBundle != bundle:
		next := have.DeepCopy()
		next.Spec.TrustBundle = bundle
		_, err = c.Update(ctx, gr.ClusterTrustBundles, next, "")
	case !wanted && have != nil && s.ours(have):
		if _, published := c.View(gr.ClusterTrustBundles).Get("", s.nameOf(bundle)); !published {
			return time.Second, nil // at no time there is none
		}
		err = c.Delete(ctx, gr.ClusterTrustBundles, "", name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(have.UID)}})
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return 0, nil
	}
	return 0, err
}
