package control

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/gr"
)

// KeepConfigMap keeps a ConfigMap of a namespace as decide wants it, as long as the namespace is there. decide gets the present one, or nil,
// and returns the one to store, or nil if nothing is to be changed. The controller must read Namespaces and ConfigMaps.
func KeepConfigMap(ctx context.Context, c *Cluster, namespace, name string, decide func(have *corev1.ConfigMap) *corev1.ConfigMap) error {
	if !Living(c.View(gr.Namespaces), namespace) {
		return nil
	}
	have, found := Get[*corev1.ConfigMap](c, gr.ConfigMaps, namespace, name)
	want := decide(have)
	var err error
	switch {
	case want == nil:
	case !found:
		_, err = c.Create(ctx, gr.ConfigMaps, want)
	default:
		_, err = c.Update(ctx, gr.ConfigMaps, want, "")
	}
	return Settled(err)
}
