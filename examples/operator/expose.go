// Package operator is a small operator, to show how one is tested with proatest: a Deployment that is annotated with a
// port gets a Service of its name.
package operator

import (
	"context"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// PortAnnotation is the annotation with the port at which a Deployment shall be reachable.
const PortAnnotation = "example.com/expose"

// Exposer keeps the Services of annotated Deployments.
type Exposer struct{ client.Client }

// Reconcile creates, updates or deletes the Service of one Deployment.
func (e *Exposer) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var d appsv1.Deployment
	if err := e.Get(ctx, req.NamespacedName, &d); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	svc := &corev1.Service{}
	svc.Namespace, svc.Name = d.Namespace, d.Name
	text, wanted := d.Annotations[PortAnnotation]
	if !wanted {
		return ctrl.Result{}, client.IgnoreNotFound(e.Delete(ctx, svc))
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("annotation %s: %w", PortAnnotation, err)
	}
	_, err = controllerutil.CreateOrUpdate(ctx, e.Client, svc, func() error {
		svc.Spec.Selector = d.Spec.Selector.MatchLabels
		svc.Spec.Ports = []corev1.ServicePort{{Port: int32(port)}}
		return controllerutil.SetControllerReference(&d, svc, e.Scheme())
	})
	return ctrl.Result{}, err
}

// Setup adds the operator to a manager.
func (e *Exposer) Setup(m ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(m).For(&appsv1.Deployment{}).Owns(&corev1.Service{}).Complete(e)
}
