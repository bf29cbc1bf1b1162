package core

import (
	"context"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/kind/kindtest"
)

// issuer is a cluster that signs tokens.
type issuer struct{ *kindtest.Cluster }

func (issuer) IssueToken(_ context.Context, _ *corev1.ServiceAccount, r *authenticationv1.TokenRequest) error {
	r.Status.Token = "signed"
	return nil
}

func TestTokenRequests(t *testing.T) {
	c := kindtest.NewCluster()
	c.Objects["pods/default/p"] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "pod"},
		Spec: corev1.PodSpec{ServiceAccountName: "a"}}
	c.Objects["pods/default/q"] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.PodSpec{ServiceAccountName: "b"}}
	c.Objects["secrets/default/s"] = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", UID: "secret"}}
	c.Objects["nodes//node1"] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: "node"}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default", UID: "account"}}
	for _, test := range []struct{ name, request, want string }{
		{"empty", `{}`, ""},
		{"bound to a pod", `spec: {boundObjectRef: {kind: Pod, apiVersion: v1, name: p, uid: pod}}`, ""},
		{"bound to a secret", `spec: {boundObjectRef: {kind: Secret, apiVersion: v1, name: s}}`, ""},
		{"bound to a node", `spec: {boundObjectRef: {kind: Node, apiVersion: v1, name: node1, uid: node}}`, ""},
		{"too short", `spec: {expirationSeconds: 599}`, `TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes`},
		{"too long", `spec: {expirationSeconds: 4294967297}`, `TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds`},
		{"other name", `metadata: {name: b}`, `TokenRequest.authentication.k8s.io "a" is invalid: metadata.name: Invalid value: "b": must match the service account name if specified`},
		{"other namespace", `metadata: {namespace: b}`, `TokenRequest.authentication.k8s.io "a" is invalid: metadata.namespace: Invalid value: "b": must match the service account namespace if specified`},
		{"other account", `metadata: {uid: b}`, `Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "a": the UID in the token request (b) does not match the UID of the service account (account)`},
		{"no such pod", `spec: {boundObjectRef: {kind: Pod, apiVersion: v1, name: x}}`, `pods "x" not found`},
		{"someone else's pod", `spec: {boundObjectRef: {kind: Pod, apiVersion: v1, name: q}}`, `cannot bind token for serviceaccount "a" to pod running with different serviceaccount name.`},
		{"another pod of that name", `spec: {boundObjectRef: {kind: Pod, apiVersion: v1, name: p, uid: x}}`, `Operation cannot be fulfilled on Pod "p": the UID in the bound object reference (x) does not match the UID in record. The object might have been deleted and then recreated`},
		{"something else", `spec: {boundObjectRef: {kind: ConfigMap, apiVersion: v1, name: p}}`,
			`cannot bind token to object of type /v1, Kind=ConfigMap`},
		{"attestations", `spec: {attestations: {a: [b]}}`, `TokenRequest.authentication.k8s.io "" is invalid: spec.attestations: Invalid value: {"a":["b"]}: attestations may only be specified with a webhook bound object reference`},
	} {
		t.Run(test.name, func(t *testing.T) {
			request := &authenticationv1.TokenRequest{}
			if err := yaml.UnmarshalStrict([]byte(test.request), request); err != nil {
				t.Fatal(err)
			}
			sub := ServiceAccounts().Sub("token")
			answer, err := sub.Do(t.Context(), issuer{c}, &kind.Call{Namespace: "default", Name: "a", Body: request}, account)
			if test.want != "" {
				if err == nil || err.Error() != test.want {
					t.Errorf("got  %v\nwant %s", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			r := answer.(*authenticationv1.TokenRequest)
			if r.Status.Token != "signed" || *r.Spec.ExpirationSeconds != 3600 || r.Name != "a" || r.Namespace != "default" ||
				r.UID != "account" || r.CreationTimestamp.IsZero() {
				t.Errorf("got %+v", r)
			}
		})
	}
}
