package backend

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/kinds/gr"
)

// Apply writes a change of slices: what is new before what is old goes, so that no endpoint is missing in between. A
// namespace that ends takes no new slices, and needs none.
func Apply(ctx context.Context, c *control.Cluster, create, update, remove []*discoveryv1.EndpointSlice) error {
	for _, s := range create {
		if _, err := c.Create(ctx, gr.EndpointSlices, s); err != nil {
			if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				return nil
			}
			return err
		}
	}
	for _, s := range update {
		if _, err := c.Update(ctx, gr.EndpointSlices, s, ""); err != nil {
			return err
		}
	}
	for _, s := range remove {
		only := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &s.UID}}
		if err := control.Gone(c.Delete(ctx, gr.EndpointSlices, s.Namespace, s.Name, only)); err != nil {
			return err
		}
	}
	return nil
}
