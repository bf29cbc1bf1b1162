// Package policystatus writes the status of ValidatingAdmissionPolicies: the errors that type checking finds in their
// expressions, for the types of the objects that they match.
package policystatus

import (
	"context"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/control"
	"proa.dev/kinds/lib/gr"
)

// Check type-checks the expressions of a policy. The server provides it, because it evaluates the expressions.
type Check func(ctx context.Context, policy *admissionv1.ValidatingAdmissionPolicy) ([]admissionv1.ExpressionWarning, error)

// Controller returns the controller.
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
			// set even if there are none, which means that the check has passed
			next.Status.TypeChecking = &admissionv1.TypeChecking{ExpressionWarnings: warnings}
			_, err = c.Update(ctx, gr.ValidatingAdmissionPolicies, next, "status")
			if apierrors.IsNotFound(err) {
				return 0, nil
			}
			return 0, err
		},
	}
}
