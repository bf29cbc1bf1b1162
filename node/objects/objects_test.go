package objects_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
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

// world is a cluster with one Pod on node n1, and that node's refs.
type world struct {
	*testing.T
	*proatest.Cluster
	refs *objects.Refs
	pod  *corev1.Pod
	told chan types.UID
}

func inBubble(t *testing.T, f func(w *world)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir))
		defer c.Stop()
		agent := c.Server.Client(&user.DefaultInfo{Name: "system:node:n1", Groups: []string{"system:nodes", "system:authenticated"}})
		w := &world{T: t, Cluster: c, refs: objects.New(agent, slog.New(slog.DiscardHandler)), told: make(chan types.UID, 100)}
		defer w.refs.Close()
		w.refs.OnChange(func(uid types.UID) { w.told <- uid })
		w.create(gr.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
		w.pod = w.runs("web")
		f(w)
	})
}

func (w *world) create(on schema.GroupResource, o kind.Object) kind.Object {
	w.Helper()
	made, err := w.Client.Create(w.Context(), on, o)
	if err != nil {
		w.Fatal(err)
	}
	return made
}

// runs makes a Pod on the node that names a Secret, a ConfigMap and a service account.
func (w *world) runs(name string) *corev1.Pod {
	w.Helper()
	time.Sleep(time.Second) // the default service account is made
	defer synctest.Wait()   // an agent learns of its Pods from the same cache that authorizes it
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

// heard are the Pods that a change was told for.
func (w *world) heard() (n int) {
	synctest.Wait()
	for len(w.told) > 0 {
		<-w.told
		n++
	}
	return n
}

func secret(value string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pull"}, StringData: map[string]string{"k": value}}
}

func TestSecretIsFollowed(t *testing.T) {
	inBubble(t, func(w *world) {
		ctx := w.Context()
		if _, err := w.refs.Secret(ctx, w.pod, "pull"); !apierrors.IsNotFound(err) || err.Error() != `secret "pull" not found` {
			w.Fatalf("got %v, want that it is not found", err)
		}
		made := w.create(gr.Secrets, secret("one")).(*corev1.Secret)
		got, err := w.refs.Secret(ctx, w.pod, "pull")
		if err != nil || string(got.Data["k"]) != "one" {
			w.Fatalf("got %v, %v", got, err)
		}
		if n := w.heard(); n != 1 {
			w.Errorf("told of the new Secret %d times, want once", n)
		}
		other := w.runs("other")
		if got, err := w.refs.Secret(ctx, other, "pull"); err != nil || string(got.Data["k"]) != "one" {
			w.Fatalf("got %v, %v", got, err)
		}
		made.Data["k"] = []byte("two")
		if _, err := w.Client.Update(ctx, gr.Secrets, made, ""); err != nil {
			w.Fatal(err)
		}
		if n := w.heard(); n != 2 {
			w.Errorf("told of a change %d times, want once for each Pod", n)
		}
		w.refs.Drop(other.UID)
		if err := w.Client.Delete(ctx, gr.Secrets, "default", "pull", metav1.DeleteOptions{}); err != nil {
			w.Fatal(err)
		}
		if n := w.heard(); n != 1 {
			w.Errorf("told of the deletion %d times, want only for the Pod that is left", n)
		}
		if _, err := w.refs.Secret(ctx, w.pod, "pull"); !apierrors.IsNotFound(err) {
			w.Errorf("got %v, want that it is not found", err)
		}
		w.refs.Drop(w.pod.UID)
		w.create(gr.Secrets, secret("three"))
		if n := w.heard(); n != 0 {
			w.Errorf("told %d times after the last Pod was dropped", n)
		}
	})
}

func TestOthersAreForbidden(t *testing.T) {
	inBubble(t, func(w *world) {
		if _, err := w.refs.Secret(w.Context(), w.pod, "not-named"); !apierrors.IsForbidden(err) {
			w.Errorf("got %v, want it forbidden", err)
		}
		// It may be asked for again: nothing remembers the refusal.
		w.create(gr.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "not-named"}})
		if _, err := w.refs.Secret(w.Context(), w.pod, "not-named"); !apierrors.IsForbidden(err) {
			w.Errorf("got %v, want it forbidden", err)
		}
	})
}

func TestImmutableIsNotFollowed(t *testing.T) {
	inBubble(t, func(w *world) {
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
		if n := w.heard(); n != 0 {
			w.Errorf("told %d times of something that cannot change", n)
		}
		if got := read(w.pod); got != "one" {
			w.Errorf("the first Pod got %q, want what it began with", got)
		}
		if got := read(w.runs("new")); got != "two" {
			w.Errorf("a new Pod got %q, want what is there now", got)
		}
	})
}

func TestTokenIsRenewed(t *testing.T) {
	inBubble(t, func(w *world) {
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
			w.Errorf("an hour's token is renewed in %v, want after four fifths", in)
		}
		if again, _ := ask(); again != first {
			w.Error("another token while the first is good")
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

func TestAnchors(t *testing.T) {
	inBubble(t, func(w *world) {
		ctx := w.Context()
		by := &corev1.ClusterTrustBundleProjection{SignerName: new("example.com/s"), LabelSelector: &metav1.LabelSelector{}, Path: "p"}
		if _, err := w.refs.Anchors(ctx, w.pod, by); err == nil || err.Error() != "combination of signerName and labelSelector matched zero ClusterTrustBundles" {
			w.Errorf("got %v", err)
		}
		by.Optional = new(true)
		if got, err := w.refs.Anchors(ctx, w.pod, by); err != nil || len(got) != 0 {
			w.Errorf("got %q, %v", got, err)
		}
		ca := authority(w.T)
		for _, name := range []string{"example.com:s:a", "example.com:s:b"} {
			w.create(gr.ClusterTrustBundles, &certificatesv1.ClusterTrustBundle{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: "example.com/s", TrustBundle: ca},
			})
		}
		if n := w.heard(); n == 0 {
			w.Error("not told of new bundles")
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

// authority is a certificate of an authority, in PEM.
func authority(t *testing.T) string {
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
