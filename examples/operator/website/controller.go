// Package website is an operator as kubebuilder scaffolds it: a custom resource in two versions, webhooks that convert, default and
// validate it, and a controller with a finalizer that runs a Deployment for each Website. Its suite shows how proatest/envtest
// replaces envtest.
package website

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1 "example.com/operator/website/api/v1"
)

// Finalizer delays the deletion of a Website until its host name is withdrawn.
const Finalizer = "example.com/withdraw"

// Reconciler runs a Deployment for each Website.
type Reconciler struct {
	client.Client
	// Withdraw removes the host name of a deleted Website from DNS.
	Withdraw func(ctx context.Context, host string) error
}

// +kubebuilder:rbac:groups=example.com,resources=websites;websites/status;websites/finalizers,verbs=get;list;watch;update;patch
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;update;patch;delete

// Reconcile brings the Deployment of one Website into the state that its spec describes.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var site v1.Website
	if err := r.Get(ctx, req.NamespacedName, &site); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !site.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.finalize(ctx, &site)
	}
	if controllerutil.AddFinalizer(&site, Finalizer) {
		if err := r.Update(ctx, &site); err != nil {
			return ctrl.Result{}, err
		}
	}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: site.Namespace, Name: site.Name}}
	if _, err := controllerutil.CreateOrUpdate(ctx, r.Client, d, func() error {
		labels := map[string]string{"example.com/website": site.Name}
		d.Spec.Replicas = site.Spec.Replicas
		d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		d.Spec.Template.Labels = labels
		if len(d.Spec.Template.Spec.Containers) == 0 {
			d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "server"}}
		}
		d.Spec.Template.Spec.Containers[0].Image = site.Spec.Image
		return controllerutil.SetControllerReference(&site, d, r.Scheme())
	}); err != nil {
		return ctrl.Result{}, fmt.Errorf("keep the Deployment: %w", err)
	}
	if site.Status.Deployed == *d.Spec.Replicas {
		return ctrl.Result{}, nil
	}
	site.Status.Deployed = *d.Spec.Replicas
	return ctrl.Result{}, r.Status().Update(ctx, &site)
}

// finalize withdraws the host name, and then removes the finalizer of the Website.
func (r *Reconciler) finalize(ctx context.Context, site *v1.Website) error {
	if !controllerutil.ContainsFinalizer(site, Finalizer) {
		return nil
	}
	if err := r.Withdraw(ctx, site.Spec.Host); err != nil {
		return fmt.Errorf("withdraw %s: %w", site.Spec.Host, err)
	}
	controllerutil.RemoveFinalizer(site, Finalizer)
	return r.Update(ctx, site)
}

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(m ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(m).For(&v1.Website{}).Owns(&appsv1.Deployment{}).Complete(r)
}
