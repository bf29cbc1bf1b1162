// Package extensiontrust keeps the ConfigMap "extension-apiserver-authentication" in kube-system, from which aggregated API
// servers read which certificate authorities the cluster trusts, and in which headers it passes on the user of a request.
package extensiontrust

import (
	"encoding/json"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/control/lib/namespaceobject"
)

const name = "extension-apiserver-authentication"

// Trust is the content of the ConfigMap. Certificates are PEM.
type Trust struct {
	Clients string // the certificate authorities of clients
	Proxies string // the certificate authorities of front proxies, which may authenticate as other users
	Allowed []string
	User    string
	UID     string
	Group   string
	Extra   string // the prefix of the headers with extra attributes of the user
}

// Controller returns the controller; trust returns what the ConfigMap shall contain.
func Controller(trust func() Trust) control.Controller {
	return namespaceobject.ConfigMap{
		Controller: "cluster-authentication-trust-controller", Namespace: metav1.NamespaceSystem, Name: name,
		Decide: func(have *corev1.ConfigMap, _ string) *corev1.ConfigMap { return decide(have, trust()) },
	}.New()
}

// decide returns the ConfigMap to store, or nil when have needs no change. Keys that others have added are kept.
func decide(have *corev1.ConfigMap, t Trust) *corev1.ConfigMap {
	data := map[string]string{
		"client-ca-file":                     t.Clients,
		"requestheader-client-ca-file":       t.Proxies,
		"requestheader-allowed-names":        list(t.Allowed...),
		"requestheader-username-headers":     list(t.User),
		"requestheader-uid-headers":          list(t.UID),
		"requestheader-group-headers":        list(t.Group),
		"requestheader-extra-headers-prefix": list(t.Extra),
	}
	if have == nil {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}, Data: data}
	}
	want := have.DeepCopy()
	if want.Data == nil {
		want.Data = map[string]string{}
	}
	maps.Copy(want.Data, data)
	if maps.Equal(have.Data, want.Data) {
		return nil
	}
	return want
}

// list encodes words as a JSON array, as readers of the ConfigMap expect them.
func list(words ...string) string {
	text, err := json.Marshal(words)
	if err != nil {
		return "[]" // never: strings can always be encoded
	}
	return string(text)
}
