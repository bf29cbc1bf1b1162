package authn

import (
	"crypto/elliptic"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func bootstrapSecret() *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: meta("kube-system", "bootstrap-token-abcdef", "u"),
		Type:       "bootstrap.kubernetes.io/token",
		Data: map[string][]byte{
			"token-id": []byte("abcdef"), "token-secret": []byte("0123456789abcdef"),
			"usage-bootstrap-authentication": []byte("true"),
			"auth-extra-groups":              []byte("system:bootstrappers:worker,system:bootstrappers:a:b"),
		},
	}
}

// TestBootstrapTokenForANode checks that a token says for which node it was made, and that one whose node name is
// invalid is rejected.
func TestBootstrapTokenForANode(t *testing.T) {
	token := "abcdef.0123456789abcdef"
	for _, tt := range []struct{ node, want string }{
		{"worker-1", "worker-1"}, {"10.0.0.7", "10.0.0.7"}, {"", "refused"}, {"A", "refused"}, {"a,b", "refused"}, {"a b", "refused"},
		{"a\n", "refused"},
	} {
		s := bootstrapSecret()
		s.Data["node"] = []byte(tt.node)
		w := newAuthnTest(t)
		w.objects["secrets/kube-system/bootstrap-token-abcdef"] = s
		who, err := w.Request(bearer(token))
		got := "refused"
		if err == nil {
			got = strings.Join(who.GetExtra()["authentication.proa.dev/node"], ",")
		}
		if got != tt.want {
			t.Errorf("a token for the node %q: %s, %v", tt.node, got, err)
		}
	}
}

func TestBootstrapToken(t *testing.T) {
	const token = "abcdef.0123456789abcdef"
	for _, tt := range []struct {
		name   string
		token  string
		change func(*corev1.Secret)
		want   string // groups, "" when rejected
	}{
		{"good", token, func(*corev1.Secret) {}, "system:bootstrappers system:bootstrappers:a:b system:bootstrappers:worker"},
		{"no extra groups", token, func(s *corev1.Secret) { delete(s.Data, "auth-extra-groups") }, "system:bootstrappers"},
		{"in time", token, func(s *corev1.Secret) {
			s.Data["expiration"] = []byte(time.Now().Add(time.Minute).UTC().Format(time.RFC3339))
		}, "system:bootstrappers system:bootstrappers:a:b system:bootstrappers:worker"},
		{"too late", token, func(s *corev1.Secret) {
			s.Data["expiration"] = []byte(time.Now().Add(-time.Minute).UTC().Format(time.RFC3339))
		}, ""},
		{"invalid expiration", token, func(s *corev1.Secret) { s.Data["expiration"] = []byte("tomorrow") }, ""},
		{"wrong secret", "abcdef.0123456789abcdeg", func(*corev1.Secret) {}, ""},
		{"no such token", "fedcba.0123456789abcdef", func(*corev1.Secret) {}, ""},
		{"upper case", "ABCDEF.0123456789abcdef", func(*corev1.Secret) {}, ""},
		{"no token secret in it", token, func(s *corev1.Secret) { delete(s.Data, "token-secret") }, ""},
		{"another id in it", token, func(s *corev1.Secret) { s.Data["token-id"] = []byte("fedcba") }, ""},
		{"not for authentication", token, func(s *corev1.Secret) { delete(s.Data, "usage-bootstrap-authentication") }, ""},
		{"another type", token, func(s *corev1.Secret) { s.Type = "Opaque" }, ""},
		{"being deleted", token, func(s *corev1.Secret) { s.DeletionTimestamp = new(metav1.Now()) }, ""},
		{"foreign group", token, func(s *corev1.Secret) { s.Data["auth-extra-groups"] = []byte("system:bootstrappers:a,system:masters") },
			""},
		{"bad group", token, func(s *corev1.Secret) { s.Data["auth-extra-groups"] = []byte("system:bootstrappers:a-") }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newAuthnTest(t)
			s := bootstrapSecret()
			tt.change(s)
			w.objects["secrets/kube-system/bootstrap-token-abcdef"] = s
			if tt.want == "" {
				expectRefused(t, w, bearer(tt.token), "invalid bearer token")
				return
			}
			expect(t, w, bearer(tt.token), "system:bootstrap:abcdef["+tt.want+" system:authenticated]")
		})
	}
}

func TestLegacyToken(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(w *authnTest, s *corev1.Secret, sa *corev1.ServiceAccount)
		want   string
	}{
		{"good", func(*authnTest, *corev1.Secret, *corev1.ServiceAccount) {}, ""},
		{"years later", func(w *authnTest, _ *corev1.Secret, _ *corev1.ServiceAccount) { w.now = w.now.AddDate(5, 0, 0) }, ""},
		{"secret gone", func(w *authnTest, _ *corev1.Secret, _ *corev1.ServiceAccount) {
			delete(w.objects, "secrets/ns/app-token")
		},
			"Token has been invalidated"},
		{"secret being deleted", func(_ *authnTest, s *corev1.Secret, _ *corev1.ServiceAccount) {
			s.DeletionTimestamp = new(metav1.Now())
		},
			"Token has been invalidated"},
		{"secret renewed", func(_ *authnTest, s *corev1.Secret, _ *corev1.ServiceAccount) { s.Data["token"] = []byte("other") },
			"Token does not match server's copy"},
		{"account gone", func(w *authnTest, _ *corev1.Secret, _ *corev1.ServiceAccount) {
			delete(w.objects, "serviceaccounts/ns/app")
		}, `serviceaccounts "app" not found`},
		{"account replaced", func(_ *authnTest, _ *corev1.Secret, sa *corev1.ServiceAccount) { sa.UID = "new" },
			"ServiceAccount UID (new) does not match claim (sa-uid)"},
		{"account being deleted", func(_ *authnTest, _ *corev1.Secret,
			sa *corev1.ServiceAccount) {
			sa.DeletionTimestamp = new(metav1.Now())
		},
			"ServiceAccount ns/app has been deleted"},
		{"marked invalid", func(_ *authnTest, s *corev1.Secret, _ *corev1.ServiceAccount) {
			s.Labels = map[string]string{InvalidSinceLabel: "2026-01-01"}
		}, "the token in secret ns/app-token for service account ns/app has been marked invalid."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newAuthnTest(t)
			sa := w.objects["serviceaccounts/ns/app"].(*corev1.ServiceAccount)
			token, err := w.IssueLegacy(sa, "app-token")
			if err != nil {
				t.Fatal(err)
			}
			s := &corev1.Secret{ObjectMeta: meta("ns", "app-token", "u"), Data: map[string][]byte{"token": []byte(token)}}
			w.objects["secrets/ns/app-token"] = s
			tt.change(w, s, sa)
			if tt.want != "" {
				expectRefused(t, w, bearer(token), tt.want)
				return
			}
			u := expect(t, w, bearer(token), appUser)
			if u.GetExtra() != nil {
				t.Errorf("extra %v", u.GetExtra())
			}
			if got := w.annotations["authentication.k8s.io/legacy-token-manual-secret"]; got != "app-token" {
				t.Errorf("annotations %v", w.annotations)
			}
			if day := w.now.UTC().Format(time.DateOnly); len(w.used) != 1 || w.used[0] != "app-token "+day {
				t.Errorf("used %v", w.used)
			}
		})
	}
}

func TestLegacyClaims(t *testing.T) {
	key := newKey(t, elliptic.P256())
	w := newAuthnTest(t, func(c *Config) { c.SigningKey = key })
	claims := func(change map[string]any) map[string]any {
		out := map[string]any{
			"iss": LegacyIssuer, "sub": "system:serviceaccount:ns:app",
			"kubernetes.io/serviceaccount/namespace": "ns", "kubernetes.io/serviceaccount/secret.name": "app-token",
			"kubernetes.io/serviceaccount/service-account.name": "app", "kubernetes.io/serviceaccount/service-account.uid": "sa-uid",
		}
		for k, v := range change {
			out[k] = v
		}
		return out
	}
	for _, tt := range []struct {
		key, value, want string
	}{
		{"sub", "", "sub claim is missing"},
		{"sub", "system:serviceaccount:kube-system:app", "sub claim is invalid"},
		{"sub", "admin", "sub claim is invalid"},
		{"kubernetes.io/serviceaccount/namespace", "", "namespace claim is missing"},
		{"kubernetes.io/serviceaccount/secret.name", "", "secretName claim is missing"},
		{"kubernetes.io/serviceaccount/service-account.name", "", "serviceAccountName claim is missing"},
		{"kubernetes.io/serviceaccount/service-account.uid", "", "serviceAccountUID claim is missing"},
	} {
		expectRefused(t, w, bearer(forge(t, key, "", claims(map[string]any{tt.key: tt.value}))), tt.want)
	}
}

func FuzzBootstrapToken(f *testing.F) {
	f.Add("abcdef.0123456789abcdef")
	f.Add("abcdef.0123456789abcde\n")
	f.Add("......................."[:23])
	f.Fuzz(func(t *testing.T, s string) {
		id, secret, ok := parseBootstrapToken(s)
		if !ok {
			return
		}
		if id+"."+secret != s || len(id) != 6 || len(secret) != 16 ||
			strings.Trim(id+secret, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
			t.Errorf("%q became %q and %q", s, id, secret)
		}
	})
}
