package node

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/kinds/gr"
	"proa.dev/node/fact"
)

// statuses writes what becomes of Pods to the API. A static Pod is not there; its status goes to the Pod that mirrors it.
type statuses struct {
	client client.Client
	mirror func(p *corev1.Pod) (*corev1.Pod, bool)
}

// Write stores a status.
func (s *statuses) Write(ctx context.Context, p *corev1.Pod, st *corev1.PodStatus) (*corev1.Pod, error) {
	target := p
	if fact.Static(p) {
		m, found := s.mirror(p)
		if !found {
			return withStatus(p, p.ResourceVersion, st), nil // shown when its mirror is there
		}
		target = m
	}
	next := target.DeepCopy()
	next.Status = *st.DeepCopy()
	if rev, err := strconv.ParseInt(p.ResourceVersion, 10, 64); err == nil {
		ctx = client.WithTrail(ctx, &client.Trail{CauseUID: p.UID, CauseRev: rev})
	}
	o, err := s.client.Update(ctx, gr.Pods, next, "status")
	switch {
	case apierrors.IsNotFound(err):
		return p, nil // the source will say so
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

func withStatus(p *corev1.Pod, version string, st *corev1.PodStatus) *corev1.Pod {
	next := p.DeepCopy()
	next.ResourceVersion, next.Status = version, *st.DeepCopy()
	return next
}

// Delete takes a Pod out of the API.
func (s *statuses) Delete(ctx context.Context, p *corev1.Pod) error {
	err := s.client.Delete(ctx, gr.Pods, p.Namespace, p.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &p.UID},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
