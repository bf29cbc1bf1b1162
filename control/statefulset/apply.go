package statefulset

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"proa.dev/control"
	"proa.dev/control/lib/workload"
	"proa.dev/kinds/lib/gr"
)

// apply carries out a plan until a step fails. It subtracts Pods that are deleted for an update from the status.
func apply(ctx context.Context, c *control.Cluster, s *state, p *plan) error {
	a := actor{c, s.set, s.newPod}
	for _, stage := range p.stages {
		if stage.parallel {
			if _, err := workload.SlowStart(len(stage.steps), func(i int) error { return a.do(ctx, &stage.steps[i]) }); err != nil {
				return err
			}
			continue
		}
		for i := range stage.steps {
			if err := a.do(ctx, &stage.steps[i]); err != nil {
				return err
			}
			if stage.steps[i].counted {
				p.status.CurrentReplicas--
			}
		}
	}
	return nil
}

// actor carries out steps for a set.
type actor struct {
	c   *control.Cluster
	set *appsv1.StatefulSet
	// newPod returns the Pod of an ordinal.
	newPod func(ordinal int) *corev1.Pod
}

func (a actor) do(ctx context.Context, st *step) error {
	switch st.verb {
	case create:
		return a.create(ctx, st)
	case update:
		return a.update(ctx, st)
	case remove:
		return a.remove(ctx, st.pod)
	case claimsOnly: // below
	}
	if err := a.makeClaims(ctx, st); err != nil {
		return err
	}
	err := a.writeRefs(ctx, st)
	if err != nil {
		a.recordEvent(update, st.pod, err)
	}
	return err
}

// create creates a Pod, after its claims.
func (a actor) create(ctx context.Context, st *step) error {
	if err := a.makeClaims(ctx, st); err != nil {
		a.recordEvent(create, st.pod, err)
		return err
	}
	_, err := a.c.Create(ctx, gr.Pods, a.newPod(ordinal(a.set, st.pod)))
	if apierrors.IsAlreadyExists(err) {
		return err
	}
	if refErr := a.writeRefs(ctx, st); refErr != nil {
		a.recordEvent(update, st.pod, refErr)
		return refErr
	}
	a.recordEvent(create, st.pod, err)
	return err
}

// update updates a Pod, after its claims.
func (a actor) update(ctx context.Context, st *step) error {
	err := a.makeClaims(ctx, st)
	if err == nil {
		err = a.writeRefs(ctx, st)
	}
	if err == nil {
		_, err = a.c.Update(ctx, gr.Pods, st.pod.DeepCopy(), "")
	}
	a.recordEvent(update, st.pod, err)
	return err
}

// remove deletes a Pod, but not another that has got its name.
func (a actor) remove(ctx context.Context, pod *corev1.Pod) error {
	err := a.c.Delete(ctx, gr.Pods, pod.Namespace, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	if apierrors.IsNotFound(err) {
		err = nil
	}
	a.recordEvent(remove, pod, err)
	return err
}

// makeClaims creates the missing claims of a Pod.
func (a actor) makeClaims(ctx context.Context, st *step) error {
	var errs []error
	for _, claim := range st.claims {
		_, err := a.c.Create(ctx, gr.PersistentVolumeClaims, claim.DeepCopy())
		switch {
		case err == nil:
			a.c.Event(a.set, corev1.EventTypeNormal, "SuccessfulCreate", "Create Claim %s Pod %s in StatefulSet %s success", claim.Name,
				st.pod.Name, a.set.Name)
			continue
		case !apierrors.IsAlreadyExists(err):
			a.c.Event(a.set, corev1.EventTypeWarning, "FailedCreate", "Create Claim %s for Pod %s in StatefulSet %s failed error: %s",
				claim.Name, st.pod.Name, a.set.Name, err)
		}
		errs = append(errs, fmt.Errorf("failed to create PVC %s: %w", claim.Name, err))
	}
	return utilerrors.NewAggregate(append(errs, st.blocked...))
}

// writeRefs updates the owners of claims. The message of the Event is misspelt as it is upstream.
func (a actor) writeRefs(ctx context.Context, st *step) error {
	for _, name := range st.conflicting {
		a.c.Event(a.set, corev1.EventTypeWarning, "ConflictingController",
			"PersistentVolumeClaim %s has a conflicting OwnerReference that acts as a manging controller, the retention policy is ignored for this claim", name)
	}
	for _, claim := range st.refs {
		if _, err := a.c.Update(ctx, gr.PersistentVolumeClaims, claim.DeepCopy(), ""); err != nil {
			return fmt.Errorf("could not update claim %s for delete policy ownerRefs: %w", claim.Name, err)
		}
	}
	return nil
}

// recordEvent records an Event about the result of a step. It records none about a conflict, which the next reconcile resolves.
func (a actor) recordEvent(did verb, pod *corev1.Pod, err error) {
	if apierrors.IsConflict(err) {
		return
	}
	if err != nil {
		a.c.Event(a.set, corev1.EventTypeWarning, "Failed"+string(did), "%s Pod %s in StatefulSet %s failed error: %s", did, pod.Name,
			a.set.Name, err)
		return
	}
	a.c.Event(a.set, corev1.EventTypeNormal, "Successful"+string(did), "%s Pod %s in StatefulSet %s successful", did, pod.Name, a.set.Name)
}
