package objects_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/node/objects"
	"proa.dev/proatest"
)

// testNode is a cluster with one Pod on node n1, and the Refs of that node's agent.
type testNode struct {
	*testing.T
	*proatest.Cluster
	refs    *objects.Refs
	pod     *corev1.Pod
	changes chan types.UID
}

// runInVirtualTime runs a test with a new cluster in a synctest bubble.
func runInVirtualTime(t *testing.T, f func(w *testNode)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir))
		defer c.Stop()
		agent := c.Server.Client(&user.DefaultInfo{Name: "system:node:n1", Groups: []string{"system:nodes", "system:authenticated"}})
		w := &testNode{T: t, Cluster: c, refs: objects.New(agent, slog.New(slog.DiscardHandler)), changes: make(chan types.UID, 100)}
		defer w.refs.Close()
		w.refs.OnChange(func(uid types.UID) { w.changes <- uid })
		w.create(gr.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
		w.pod = w.createPod("web")
		f(w)
	})
}

func (w *testNode) create(on schema.GroupResource, o kind.Object) kind.Object {
	w.Helper()
	made, err := w.Client.Create(w.Context(), on, o)
	if err != nil {
		w.Fatal(err)
	}
	return made
}

// createPod creates a Pod on the node that names a Secret, a ConfigMap and a service account.
func (w *testNode) createPod(name string) *corev1.Pod {
	w.Helper()
	time.Sleep(time.Second) // until the default service account exists
	defer synctest.Wait()   // until the authorizer's cache has the Pod
	return w.create(gr.Pods, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PodSpec{
			NodeName: "n1",
			Containers: []corev1.Container{{Name: "c", Image: "i",
				EnvFrom: []corev1.EnvFromSource{
					{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}}},
			ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}},
		},
	}).(*corev1.Pod)
}

// countChanges returns how many notifications there were since the last call.
func (w *testNode) countChanges() (n int) {
	synctest.Wait()
	for len(w.changes) > 0 {
		<-w.changes
		n++
	}
	return n
}

func secret(value string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pull"}, StringData: map[string]string{"k": value}}
}

func TestSecretChanges(t *testing.T) {
	runInVirtualTime(t, func(w *testNode) {
		ctx := w.Context()
		if _, err := w.refs.Secret(ctx, w.pod, "pull"); !apierrors.IsNotFound(err) || err.Error() != `secret "pull" not found` {
			w.Fatalf("got %v, want that it is not found", err)
		}
		created := w.create(gr.Secrets, secret("one")).(*corev1.Secret)
		got, err := w.refs.Secret(ctx, w.pod, "pull")
		if err != nil || string(got.Data["k"]) != "one" {
			w.Fatalf("got %v, %v", got, err)
		}
		if n := w.countChanges(); n != 1 {
			w.Errorf("%d notifications of the new Secret, want 1", n)
		}
		other := w.createPod("other")
		if got, err := w.refs.Secret(ctx, other, "pull"); err != nil || string(got.Data["k"]) != "one" {
			w.Fatalf("got %v, %v", got, err)
		}
		created.Data["k"] = []byte("two")
		if _, err := w.Client.Update(ctx, gr.Secrets, created, ""); err != nil {
			w.Fatal(err)
		}
		if n := w.countChanges(); n != 2 {
			w.Errorf("%d notifications of a change, want one for each Pod", n)
		}
		w.refs.Drop(other.UID)
		if err := w.Client.Delete(ctx, gr.Secrets, "default", "pull", metav1.DeleteOptions{}); err != nil {
			w.Fatal(err)
		}
		if n := w.countChanges(); n != 1 {
			w.Errorf("%d notifications of the deletion, want one for the remaining Pod", n)
		}
		if _, err := w.refs.Secret(ctx, w.pod, "pull"); !apierrors.IsNotFound(err) {
			w.Errorf("got %v, want that it is not found", err)
		}
		w.refs.Drop(w.pod.UID)
		w.create(gr.Secrets, secret("three"))
		if n := w.countChanges(); n != 0 {
			w.Errorf("%d notifications after the last Pod was dropped", n)
		}
	})
}

// TestObjectsOfOnePodAreBounded reads more objects for a Pod than the agent watches for one.
func TestObjectsOfOnePodAreBounded(t *testing.T) {
	runInVirtualTime(t, func(w *testNode) {
		const bound, named = 256, 258
		large := w.pod.DeepCopy()
		large.ObjectMeta = metav1.ObjectMeta{Namespace: "default", Name: "large"}
		name := func(i int) string { return fmt.Sprintf("c%d", i) }
		for i := range named {
			large.Spec.Containers[0].EnvFrom = append(large.Spec.Containers[0].EnvFrom, corev1.EnvFromSource{
				ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name(i)}}})
		}
		large = w.create(gr.Pods, large).(*corev1.Pod)
		synctest.Wait()
		for range 2 { // what is held counts once
			for i := range bound {
				if _, err := w.refs.ConfigMap(w.Context(), large, name(i)); !apierrors.IsNotFound(err) {
					w.Fatalf("%s: got %v, want that it is not found", name(i), err)
				}
			}
		}
		for i := bound; i < named; i++ {
			_, err := w.refs.ConfigMap(w.Context(), large, name(i))
			if err == nil || !strings.Contains(err.Error(), "more than 256 ConfigMaps") {
				w.Errorf("%s: got %v", name(i), err)
			}
		}
		if _, err := w.refs.Secret(w.Context(), w.pod, "pull"); !apierrors.IsNotFound(err) {
			w.Errorf("another Pod gets %v", err)
		}
		w.refs.Drop(large.UID)
		if _, err := w.refs.ConfigMap(w.Context(), large, name(bound)); !apierrors.IsNotFound(err) {
			w.Errorf("after the Pod was dropped: %v", err)
		}
	})
}

func TestSecretOfNoPodIsForbidden(t *testing.T) {
	runInVirtualTime(t, func(w *testNode) {
		if _, err := w.refs.Secret(w.Context(), w.pod, "not-named"); !apierrors.IsForbidden(err) {
			w.Errorf("got %v, want it forbidden", err)
		}
		// The refusal is not cached.
		w.create(gr.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "not-named"}})
		if _, err := w.refs.Secret(w.Context(), w.pod, "not-named"); !apierrors.IsForbidden(err) {
			w.Errorf("got %v, want it forbidden", err)
		}
	})
}

func TestImmutableConfigMapIsReadOnce(t *testing.T) {
	runInVirtualTime(t, func(w *testNode) {
		ctx := w.Context()
		settings := func(v string) *corev1.ConfigMap {
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "settings"}, Data: map[string]string{"k": v},
				Immutable: new(true)}
		}
		w.create(gr.ConfigMaps, settings("one"))
		read := func(p *corev1.Pod) string {
			w.Helper()
			got, err := w.refs.ConfigMap(ctx, p, "settings")
			if err != nil {
				w.Fatal(err)
			}
			return got.Data["k"]
		}
		if got := read(w.pod); got != "one" {
			w.Errorf("got %q", got)
		}
		if err := w.Client.Delete(ctx, gr.ConfigMaps, "default", "settings", metav1.DeleteOptions{}); err != nil {
			w.Fatal(err)
		}
		w.create(gr.ConfigMaps, settings("two"))
		if n := w.countChanges(); n != 0 {
			w.Errorf("%d notifications of an immutable object", n)
		}
		if got := read(w.pod); got != "one" {
			w.Errorf("the first Pod got %q, want the value that it started with", got)
		}
		if got := read(w.createPod("new")); got != "two" {
			w.Errorf("a new Pod got %q, want the present value", got)
		}
	})
}

func TestTokenIsRenewed(t *testing.T) {
	runInVirtualTime(t, func(w *testNode) {
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: new(int64(3600)),
			BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: w.pod.Name, UID: w.pod.UID},
		}}
		ask := func() (string, time.Time) {
			w.Helper()
			t, renew, err := w.refs.Token(w.Context(), "default", "default", request)
			if err != nil {
				w.Fatal(err)
			}
			return t.Status.Token, renew
		}
		first, renew := ask()
		if in := time.Until(renew); in > 48*time.Minute || in < 47*time.Minute {
			w.Errorf("a token of an hour is renewed in %v, want after 80 %%", in)
		}
		if again, _ := ask(); again != first {
			w.Error("a new token although the first is valid")
		}
		time.Sleep(time.Until(renew) + time.Second)
		if again, _ := ask(); again == first {
			w.Error("the token was not renewed")
		}
		if err := w.Client.Delete(w.Context(), gr.Pods, "default", "web",
			metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
			w.Fatal(err)
		}
		w.refs.Drop(w.pod.UID)
		if _, _, err := w.refs.Token(w.Context(), "default", "default", request); err == nil ||
			!strings.HasPrefix(err.Error(), "failed to fetch token: ") {
			w.Errorf("got %v, want a failure", err)
		}
	})
}

func TestTrustAnchors(t *testing.T) {
	runInVirtualTime(t, func(w *testNode) {
		ctx := w.Context()
		by := &corev1.ClusterTrustBundleProjection{SignerName: new("example.com/s"), LabelSelector: &metav1.LabelSelector{}, Path: "p"}
		if _, err := w.refs.Anchors(ctx, w.pod, by); err == nil || err.Error() != "combination of signerName and labelSelector matched zero ClusterTrustBundles" {
			w.Errorf("got %v", err)
		}
		by.Optional = new(true)
		if got, err := w.refs.Anchors(ctx, w.pod, by); err != nil || len(got) != 0 {
			w.Errorf("got %q, %v", got, err)
		}
		ca := caCertificate(w.T)
		for _, name := range []string{"example.com:s:a", "example.com:s:b"} {
			w.create(gr.ClusterTrustBundles, &certificatesv1.ClusterTrustBundle{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: "example.com/s", TrustBundle: ca},
			})
		}
		if n := w.countChanges(); n == 0 {
			w.Error("no notification of new bundles")
		}
		got, err := w.refs.Anchors(ctx, w.pod, by)
		if err != nil || strings.Count(string(got), "BEGIN CERTIFICATE") != 1 {
			w.Errorf("got %q, %v; want the one certificate of both", got, err)
		}
		if _, err := w.refs.Anchors(ctx, w.pod, &corev1.ClusterTrustBundleProjection{Name: new("none")}); !apierrors.IsNotFound(err) {
			w.Errorf("got %v", err)
		}
	})
}

// caCertificate returns a self-signed CA certificate in PEM.
func caCertificate(t *testing.T) string {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
