// Package namespaceobject is what the controllers share that keep an object of a fixed name in one namespace or in every
// one, such as the root certificate of the cluster or the default ServiceAccount.
package namespaceobject

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/kinds/lib/gr"
)

// ConfigMap declares a controller that keeps a ConfigMap as Decide wants it.
type ConfigMap struct {
	Controller string
	// Namespace is the namespace of the ConfigMap; empty to keep one in every namespace.
	Namespace string
	Name      string
	// Decide returns the ConfigMap to store, or nil if have needs no change. have is nil if there is none.
	Decide func(have *corev1.ConfigMap, namespace string) *corev1.ConfigMap
}

// New returns the controller. Its keys are namespaces, and changes of the ConfigMap wake it.
func (m ConfigMap) New() control.Controller {
	return control.Controller{
		Name: m.Controller, For: gr.Namespaces, Writes: []control.Write{{On: gr.ConfigMaps, Do: "create update"}},
		Triggers: []control.Trigger{{On: gr.ConfigMaps, Of: control.Key{Namespace: m.Namespace, Name: m.Name}, Keys: control.NamespaceOf}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			if m.Namespace != "" && k.Name != m.Namespace {
				return 0, nil
			}
			return 0, m.keep(ctx, c, k.Name)
		},
	}
}

// keep creates or updates the ConfigMap of a namespace, unless the namespace is being deleted.
func (m ConfigMap) keep(ctx context.Context, c *control.Cluster, namespace string) error {
	if !IsActive(c.View(gr.Namespaces), namespace) {
		return nil
	}
	have, found := control.Get[*corev1.ConfigMap](c, gr.ConfigMaps, namespace, m.Name)
	want := m.Decide(have, namespace)
	var err error
	switch {
	case want == nil:
	case !found:
		_, err = c.Create(ctx, gr.ConfigMaps, want)
	default:
		_, err = c.Update(ctx, gr.ConfigMaps, want, "")
	}
	return control.IgnoreObsolete(err)
}

// IsActive reports whether a namespace exists and is not being deleted, so that objects can still be created in it.
func IsActive(namespaces client.View, name string) bool {
	o, found := namespaces.Get("", name)
	return found && o.(*corev1.Namespace).Status.Phase != corev1.NamespaceTerminating && o.GetDeletionTimestamp() == nil
}
