package node

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/kinds/lib/gr"
	"proa.dev/node/fact"
)

// statusWriter writes the status of Pods to the API. The status of a static Pod goes to its mirror Pod.
type statusWriter struct {
	client client.Client
	mirror func(p *corev1.Pod) (*corev1.Pod, bool)
}

// Write stores the status of a Pod, and returns the Pod as the API then has it.
func (s *statusWriter) Write(ctx context.Context, p *corev1.Pod, st *corev1.PodStatus) (*corev1.Pod, error) {
	target := p
	if fact.Static(p) {
		m, found := s.mirror(p)
		if !found {
			return withStatus(p, p.ResourceVersion, st), nil // written once the mirror Pod exists
		}
		target = m
	}
	next := target.DeepCopy()
	next.Status = *st.DeepCopy()
	o, err := s.client.Update(causedBy(ctx, p), gr.Pods, next, "status")
	switch {
	case apierrors.IsNotFound(err):
		return p, nil // the Pod source will report its deletion
	case err != nil:
		return nil, err
	}
	wrote, ok := o.(*corev1.Pod)
	if !ok {
		return nil, fmt.Errorf("the API answered with a %T", o)
	}
	if target != p {
		return withStatus(p, wrote.ResourceVersion, &wrote.Status), nil
	}
	return wrote, nil
}

// causedBy returns a context whose writes name a version of a Pod as their cause. A server in another process does not hear of
// it, and finds the cause by the UID of the Pod.
func causedBy(ctx context.Context, p *corev1.Pod) context.Context {
	rev, err := strconv.ParseInt(p.ResourceVersion, 10, 64)
	if err != nil {
		return ctx // a static Pod
	}
	return client.WithWriteSet(ctx, &client.WriteSet{CauseUID: p.UID, CauseRev: rev})
}

func withStatus(p *corev1.Pod, version string, st *corev1.PodStatus) *corev1.Pod {
	next := p.DeepCopy()
	next.ResourceVersion, next.Status = version, *st.DeepCopy()
	return next
}

// Delete removes a Pod from the API without a grace period, unless another Pod has its name now.
func (s *statusWriter) Delete(ctx context.Context, p *corev1.Pod) error {
	err := s.client.Delete(causedBy(ctx, p), gr.Pods, p.Namespace, p.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &p.UID},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
