// Package rootca keeps the ConfigMap "kube-root-ca.crt" in every namespace, by which Pods verify the API server.
package rootca

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/control/lib/namespaceobject"
)

const name = "kube-root-ca.crt"

// Controller returns the controller; bundle returns the current CA certificates in PEM.
func Controller(bundle func() string) control.Controller {
	return namespaceobject.ConfigMap{
		Controller: "root-ca-cert-publisher", Name: name,
		Decide: func(have *corev1.ConfigMap, namespace string) *corev1.ConfigMap {
			return decide(have, namespace, bundle())
		},
	}.New()
}

// decide returns the ConfigMap to store, or nil when have needs no change.
func decide(have *corev1.ConfigMap, namespace, bundle string) *corev1.ConfigMap {
	const why = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."
	data := map[string]string{"ca.crt": bundle}
	if have == nil {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
				Annotations: map[string]string{"kubernetes.io/description": why}},
			Data: data,
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
