// Package endpoints publishes the pods of each Service as Endpoints, the older form of EndpointSlices: one object with at
// most a thousand addresses.
package endpoints

import (
	"context"
	"iter"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/control/lib/servicebackends"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

const (
	manager   = "endpoint-controller"
	managedBy = "endpoints.kubernetes.io/managed-by"
	// leader is the annotation of Endpoints that are a lock for leader election, and belong to no Service.
	leader = "control-plane.alpha.kubernetes.io/leader"
)

// Controller returns the controller.
func Controller() control.Controller {
	return control.Controller{
		Name: manager, For: gr.Services, Workers: 5,
		Triggers: []control.Trigger{
			{On: gr.Pods, Keys: servicebackends.Services, When: servicebackends.ChangesEndpoint},
			{On: gr.Endpoints, Keys: control.SameKey, When: isCreatedOrDeleted},
			{On: gr.Services, Keys: keyOfDeletedService, When: func(_, now kind.Object) bool { return now == nil }},
		},
		Writes:    []control.Write{{On: gr.Endpoints, Do: "create update delete"}},
		Reconcile: reconcile,
	}
}

// isCreatedOrDeleted reports whether Endpoints were deleted, or are seen for the first time, when their Service may no
// longer exist. Changes of Endpoints are left to their writers.
func isCreatedOrDeleted(old, now kind.Object) bool { return old == nil || now == nil }

// deletedSuffix is the suffix of a key whose Service was seen to be deleted. Then its Endpoints are deleted even if a user created
// them. Otherwise those are kept: they may have been created before their Service.
const deletedSuffix = "/"

// keyOfDeletedService yields the key of a deleted Service.
func keyOfDeletedService(_ *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		yield(control.Key{Namespace: o.GetNamespace(), Name: o.GetName() + deletedSuffix})
	}
}

func reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	name, deleted := strings.CutSuffix(k.Name, deletedSuffix)
	s, found := control.Get[*corev1.Service](c, gr.Services, k.Namespace, name)
	have, has := control.Get[*corev1.Endpoints](c, gr.Endpoints, k.Namespace, name)
	switch {
	case !found && has && (deleted || isManaged(have)) && !isLock(have):
		only := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &have.UID}}
		if err := c.Delete(ctx, gr.Endpoints, k.Namespace, name, only); err != nil && !apierrors.IsNotFound(err) {
			return 0, err
		}
		return 0, nil
	case !found || !servicebackends.HasSelector(s):
		return 0, nil
	}
	want := decide(s, servicebackends.Pods(c, s), have)
	if want == nil {
		return 0, nil
	}
	var err error
	if has {
		if _, err = c.Update(ctx, gr.Endpoints, want, ""); err != nil && !apierrors.IsConflict(err) {
			c.Event(have, corev1.EventTypeWarning, "FailedToUpdateEndpoint", "Failed to update endpoint %v/%v: %v", s.Namespace, s.Name,
				err)
		}
		return 0, err
	}
	about := want.DeepCopy()
	if _, err = c.Create(ctx, gr.Endpoints, want); apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return 0, nil
	} else if err != nil {
		about.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Endpoints"))
		c.Event(about, corev1.EventTypeWarning, "FailedToCreateEndpoint", "Failed to create endpoint for service %v/%v: %v", s.Namespace,
			s.Name, err)
	}
	return 0, err
}
