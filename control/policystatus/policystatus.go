// Package policystatus writes the status of ValidatingAdmissionPolicies: what is wrong with their expressions, by the types
// of the objects that they match.
package policystatus

import (
	"context"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/control"
	"proa.dev/kinds/gr"
)

// Check finds the flaws of a policy's expressions. It belongs to who evaluates them.
type Check func(ctx context.Context, policy *admissionv1.ValidatingAdmissionPolicy) ([]admissionv1.ExpressionWarning, error)

// Controller returns the loop.
func Controller(check Check) control.Controller {
	return control.Controller{
		Name: "validatingadmissionpolicy-status-controller", For: gr.ValidatingAdmissionPolicies, Workers: 5,
		Writes: []control.Write{{On: gr.ValidatingAdmissionPolicies, Do: "update/status"}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			policy, found := control.Get[*admissionv1.ValidatingAdmissionPolicy](c, gr.ValidatingAdmissionPolicies, "", k.Name)
			if !found || policy.Generation <= policy.Status.ObservedGeneration {
				return 0, nil
			}
			warnings, err := check(ctx, policy)
			if err != nil {
				return 0, err
			}
			next := policy.DeepCopy()
			next.Status.ObservedGeneration = policy.Generation
			next.Status.TypeChecking = &admissionv1.TypeChecking{ExpressionWarnings: warnings} // there even when it is empty, which says that all is well
			_, err = c.Update(ctx, gr.ValidatingAdmissionPolicies, next, "status")
			if apierrors.IsNotFound(err) {
				return 0, nil
			}
			return 0, err
		},
	}
}
