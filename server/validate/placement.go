package validate

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/placement"
)

// podNodeSelector refuses a new pod that selects other nodes than its namespace, after hop 4 had put it right.
func podNodeSelector(s placement.Selectors) func(context.Context, *kind.Admission) error {
	return func(ctx context.Context, a *kind.Admission) error {
		pod := newPod(a)
		if pod == nil {
			return nil
		}
		ns, err := a.Home(ctx)
		if err != nil {
			return err
		}
		if err := s.Check(pod.Spec.NodeSelector, ns); err != nil {
			return apierrors.NewForbidden(a.Def.Resource(), pod.Name, err)
		}
		return nil
	}
}

// podTolerations refuses a pod that tolerates more than its namespace may.
func podTolerations(t placement.Tolerations) func(context.Context, *kind.Admission) error {
	return func(ctx context.Context, a *kind.Admission) error {
		pod, ok := a.Object.(*corev1.Pod)
		if !ok || a.Sub != "" || len(pod.Spec.Tolerations) == 0 {
			return nil
		}
		ns, err := a.Home(ctx)
		if err != nil {
			return err
		}
		return t.Check(pod.Spec.Tolerations, ns)
	}
}
