// Package endpoints publishes the pods behind each Service as Endpoints, the older form of EndpointSlices: one object, which
// holds no more than a thousand addresses.
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
	"proa.dev/control/backend"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

const (
	manager   = "endpoint-controller"
	managedBy = "endpoints.kubernetes.io/managed-by"
	// leader marks Endpoints that are used as a lock; nobody's Service is behind them.
	leader = "control-plane.alpha.kubernetes.io/leader"
)

// Controller returns the loop.
func Controller() control.Controller {
	return control.Controller{
		Name: manager, For: gr.Services, Workers: 5,
		Triggers: []control.Trigger{
			{On: gr.Pods, Keys: backend.Services, When: backend.Moved},
			{On: gr.Endpoints, Keys: control.Self, When: lost},
			{On: gr.Services, Keys: bereft, When: func(_, now kind.Object) bool { return now == nil }},
		},
		Writes:    []control.Write{{On: gr.Endpoints, Do: "create update delete"}},
		Reconcile: reconcile,
	}
}

// lost says that Endpoints are gone, or were found: then nobody knows whether their Service still is there. Changes are
// the business of whoever makes them.
func lost(old, now kind.Object) bool { return old == nil || now == nil }

// gone at the end of a key says that the Service was seen to be deleted. Its Endpoints go with it, even those that somebody
// made by hand. Without that they stay: they may have been made before their Service.
const gone = "/"

func bereft(_ *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		yield(control.Key{Namespace: o.GetNamespace(), Name: o.GetName() + gone})
	}
}

func reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	name, deleted := strings.CutSuffix(k.Name, gone)
	s, found := control.Get[*corev1.Service](c, gr.Services, k.Namespace, name)
	have, has := control.Get[*corev1.Endpoints](c, gr.Endpoints, k.Namespace, name)
	switch {
	case !found && has && (deleted || ours(have)) && !lock(have):
		only := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &have.UID}}
		if err := c.Delete(ctx, gr.Endpoints, k.Namespace, name, only); err != nil && !apierrors.IsNotFound(err) {
			return 0, err
		}
		return 0, nil
	case !found || !backend.Published(s):
		return 0, nil
	}
	want := decide(s, backend.Pods(c, s), have)
	if want == nil {
		return 0, nil
	}
	var err error
	if has {
		if _, err = c.Update(ctx, gr.Endpoints, want, ""); err != nil && !apierrors.IsConflict(err) {
			c.Event(have, corev1.EventTypeWarning, "FailedToUpdateEndpoint", "Failed to update endpoint %v/%v: %v", s.Namespace, s.Name, err)
		}
		return 0, err
	}
	about := want.DeepCopy()
	if _, err = c.Create(ctx, gr.Endpoints, want); apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return 0, nil
	} else if err != nil {
		about.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Endpoints"))
		c.Event(about, corev1.EventTypeWarning, "FailedToCreateEndpoint", "Failed to create endpoint for service %v/%v: %v", s.Namespace, s.Name, err)
	}
	return 0, err
}
