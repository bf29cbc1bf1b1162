// Package podcertificate deletes PodCertificateRequests some time after they were created. By then the kubelet has its
// certificate, or has made another request.
package podcertificate

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/kinds/lib/gr"
)

// keep is longer than any request takes.
const keep = 15 * time.Minute

// Controller returns the controller.
func Controller() control.Controller {
	return control.Controller{
		Name: "podcertificaterequestcleaner", For: gr.PodCertificateRequests,
		Writes: []control.Write{{On: gr.PodCertificateRequests, Do: "delete"}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			request, found := c.View(gr.PodCertificateRequests).Get(k.Namespace, k.Name)
			if !found || request.GetDeletionTimestamp() != nil {
				return 0, nil
			}
			if left := time.Until(request.GetCreationTimestamp().Add(keep)); left > 0 {
				return left, nil
			}
			err := c.Delete(ctx, gr.PodCertificateRequests, k.Namespace, k.Name,
				metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(request.GetUID())}})
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // it was deleted, or another one has its name
				return 0, nil
			}
			return 0, err
		},
	}
}
