// Package clustersettings keeps the ConfigMap "proa-cluster" in kube-system, from which agents in other processes read the
// settings that all nodes of a cluster must share, such as its networks. If somebody deletes or changes it, the controller
// restores it, because nodes would otherwise restart with other settings.
package clustersettings

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/control/lib/namespaceobject"
)

// Name is the name of the ConfigMap, which is in kube-system.
const Name = "proa-cluster"

// Controller returns the controller; settings returns the settings of the server.
func Controller(settings func() map[string]string) control.Controller {
	return namespaceobject.ConfigMap{
		Controller: "cluster-settings-publisher", Namespace: metav1.NamespaceSystem, Name: Name,
		Decide: func(have *corev1.ConfigMap, _ string) *corev1.ConfigMap { return Decide(have, settings()) },
	}.New()
}

// Decide returns the ConfigMap to store, or nil when have, which is nil where there is none, has exactly these settings.
func Decide(have *corev1.ConfigMap, settings map[string]string) *corev1.ConfigMap {
	if have == nil {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: Name}, Data: settings}
	}
	if maps.Equal(have.Data, settings) {
		return nil
	}
	want := have.DeepCopy()
	want.Data = settings
	return want
}
