package controllers

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control"
	"proa.dev/control/controltest"
	"proa.dev/control/devicetaint"
	"proa.dev/kinds/lib/gr"
)

func TestDeviceTaint(t *testing.T) {
	t.Parallel()
	controllers := devicetaint.Controllers()
	controllers[1].Name += "-rules" // every controller of a script has its own role
	controltest.Scripts(t, "../../control/devicetaint/testdata/*.txt", append(controllers, reserver())...)
}

// reserver reserves the claims of a Pod, as a scheduler would.
func reserver() control.Controller {
	return control.Controller{
		Name: "reserver", For: gr.Pods, Reads: []schema.GroupResource{gr.ResourceClaims},
		Writes: []control.Write{{On: gr.ResourceClaims, Do: "update/status update/binding"}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			pod, found := control.Get[*corev1.Pod](c, gr.Pods, k.Namespace, k.Name)
			if !found {
				return 0, nil
			}
			for _, r := range pod.Spec.ResourceClaims {
				claim, found := control.Get[*resourcev1.ResourceClaim](c, gr.ResourceClaims, pod.Namespace, *r.ResourceClaimName)
				if !found || len(claim.Status.ReservedFor) > 0 {
					continue
				}
				next := claim.DeepCopy()
				next.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}}
				if _, err := c.Update(ctx, gr.ResourceClaims, next, "status"); err != nil {
					return 0, err
				}
			}
			return 0, nil
		},
	}
}
