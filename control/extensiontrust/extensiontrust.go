// Package extensiontrust keeps the ConfigMap "extension-apiserver-authentication", from which API servers that extend the cluster
// learn whose certificates it believes, and in which headers it says who asks when it hands a request on.
package extensiontrust

import (
	"context"
	"encoding/json"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/kinds/gr"
)

const name = "extension-apiserver-authentication"

// Trust is what there is to tell. Certificates are PEM.
type Trust struct {
	Clients string // the authorities of clients
	Proxies string // the authorities of those who may speak for others
	Allowed []string
	User    string
	UID     string
	Group   string
	Extra   string // what the names of the other headers begin with
}

// Controller returns the loop; trust is what there is to tell now.
func Controller(trust func() Trust) control.Controller {
	return control.Controller{
		Name: "cluster-authentication-trust-controller", For: gr.Namespaces, Writes: []control.Write{{On: gr.ConfigMaps, Do: "create update"}},
		Triggers: []control.Trigger{{
			On: gr.ConfigMaps, Of: control.Key{Namespace: metav1.NamespaceSystem, Name: name}, Keys: control.Home,
		}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			if k.Name != metav1.NamespaceSystem {
				return 0, nil
			}
			return 0, control.KeepConfigMap(ctx, c, k.Name, name, func(have *corev1.ConfigMap) *corev1.ConfigMap { return decide(have, trust()) })
		},
	}
}

// decide returns the ConfigMap to store, or nil when have is as wanted. What others have added to it stays.
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

// list is how readers expect several words.
func list(words ...string) string {
	text, err := json.Marshal(words)
	if err != nil {
		return "[]" // words can always be written
	}
	return string(text)
}
