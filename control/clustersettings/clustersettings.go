// Package clustersettings keeps the ConfigMap "proa-cluster", from which agents in other processes learn the settings that all nodes of a
// cluster must have alike. Whoever deletes or changes it would have nodes start again with other networks.
package clustersettings

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/kinds/gr"
)

// Name is the name of the ConfigMap, which is in kube-system.
const Name = "proa-cluster"

// Controller returns the loop; settings are those of the server.
func Controller(settings func() map[string]string) control.Controller {
	return control.Controller{
		Name: "cluster-settings-publisher", For: gr.Namespaces, Writes: []control.Write{{On: gr.ConfigMaps, Do: "create update"}},
		Triggers: []control.Trigger{{
			On: gr.ConfigMaps, Of: control.Key{Namespace: metav1.NamespaceSystem, Name: Name}, Keys: control.Home,
		}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			if k.Name != metav1.NamespaceSystem {
				return 0, nil
			}
			return 0, control.KeepConfigMap(ctx, c, k.Name, Name, func(have *corev1.ConfigMap) *corev1.ConfigMap { return Decide(have, settings()) })
		},
	}
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
