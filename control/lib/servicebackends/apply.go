package servicebackends

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/kinds/lib/gr"
)

// Apply writes changes of EndpointSlices: it creates and updates before it deletes, so that no endpoint is missing in
// between. That a namespace which is being deleted accepts no new slices is no error.
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
		if err := control.IgnoreNotFound(c.Delete(ctx, gr.EndpointSlices, s.Namespace, s.Name, only)); err != nil {
			return err
		}
	}
	return nil
}
