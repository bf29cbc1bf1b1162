// Package trustbundle keeps the ClusterTrustBundles by which Pods that mount them verify the API server and kubelets. The
// name of a bundle contains a hash of its certificates: a rotation of the certificate authority creates a new bundle, and
// the older ones of the signer are deleted.
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
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// signer is the signer name of the certificates that a bundle verifies.
type signer string

// APIServer returns the controller for the certificate of the API server; bundle returns the current CA certificates in PEM.
func APIServer(bundle func() string) control.Controller {
	return signer("kubernetes.io/kube-apiserver-serving").controller("kube-apiserver-serving-clustertrustbundle-publisher", bundle)
}

// Agents returns the controller for the serving certificates of node agents, by which metrics-server and others can verify
// nodes. Upstream has none, because there the control plane need not know the certificate authority of kubelets.
func Agents(bundle func() string) control.Controller {
	return signer(certificatesv1.KubeletServingSignerName).controller("kubelet-serving-clustertrustbundle-publisher", bundle)
}

func (s signer) controller(name string, bundle func() string) control.Controller {
	return control.Controller{
		Name: name, For: gr.ClusterTrustBundles, When: s.isOwnChange,
		Writes: []control.Write{
			{On: gr.ClusterTrustBundles, Do: "create update delete"},
			{On: schema.GroupResource{Group: certificatesv1.GroupName, Resource: "signers"}, Do: "attest"},
		},
		Triggers: []control.Trigger{
			// This namespace always exists, and its first event creates the first bundle.
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

// nameOf returns the name of the bundle with these certificates.
func (s signer) nameOf(bundle string) string {
	hash := sha256.Sum256([]byte(bundle))
	return fmt.Sprintf("%s:%x", strings.ReplaceAll(string(s), "/", ":"), hash[:12])
}

// isOwnChange ignores the bundles of other signers.
func (s signer) isOwnChange(old, now kind.Object) bool {
	return s.isOwn(old) || s.isOwn(now)
}

func (s signer) isOwn(o kind.Object) bool {
	b, ok := o.(*certificatesv1.ClusterTrustBundle)
	return ok && b.Spec.SignerName == string(s)
}

func (s signer) reconcile(ctx context.Context, c *control.Cluster, have *certificatesv1.ClusterTrustBundle, name,
	bundle string) (again time.Duration, err error) {
	switch wanted := name == s.nameOf(bundle); {
	case wanted && have == nil:
		_, err = c.Create(ctx, gr.ClusterTrustBundles, &certificatesv1.ClusterTrustBundle{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: string(s), TrustBundle: bundle},
		})
	case wanted && have.Spec.TrustBundle != bundle:
		next := have.DeepCopy()
		next.Spec.TrustBundle = bundle
		_, err = c.Update(ctx, gr.ClusterTrustBundles, next, "")
	case !wanted && have != nil && s.isOwn(have):
		if _, published := c.View(gr.ClusterTrustBundles).Get("", s.nameOf(bundle)); !published {
			return time.Second, nil // there must always be a bundle: the new one must exist first
		}
		err = c.Delete(ctx, gr.ClusterTrustBundles, "", name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(have.UID)}})
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return 0, nil
	}
	return 0, err
}
