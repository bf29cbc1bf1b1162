// Package rootca keeps the ConfigMap "kube-root-ca.crt" in every namespace, with which Pods trust the API server.
package rootca

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/kinds/gr"
)

const name = "kube-root-ca.crt"

// Controller returns the loop; bundle is the CA certificates of now in PEM.
func Controller(bundle func() string) control.Controller {
	return control.Controller{
		Name: "root-ca-cert-publisher", For: gr.Namespaces, Writes: []control.Write{{On: gr.ConfigMaps, Do: "create update"}},
		Triggers: []control.Trigger{{On: gr.ConfigMaps, Of: control.Key{Name: name}, Keys: control.Home}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			return 0, control.KeepConfigMap(ctx, c, k.Name, name, func(have *corev1.ConfigMap) *corev1.ConfigMap { return decide(have, k.Name, bundle()) })
		},
	}
}

// decide returns the ConfigMap to store, or nil when have is as wanted.
func decide(have *corev1.ConfigMap, namespace, bundle string) *corev1.ConfigMap {
	const why = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."
	data := map[string]string{"ca.crt": bundle}
	if have == nil {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{"kubernetes.io/description": why}},
			Data:       data,
		}
	}
	if maps.Equal(have.Data, data) && have.Annotations["kubernetes.io/description"] != "" {
		return nil
	}
	want := have.DeepCopy()
	want.Data = data
	if want.Annotations == nil {
		want.Annotations = map[string]string{}
	}
	want.Annotations["kubernetes.io/description"] = why
	return want
}
