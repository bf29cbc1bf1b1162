package validate

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/placement"
	"proa.dev/server/admissionlib"
)

// podNodeSelector rejects a new pod whose node selector conflicts with that of its namespace, in case it was changed
// after hop 4.
func podNodeSelector(s placement.Selectors) func(context.Context, *kind.Admission) error {
	return func(ctx context.Context, a *kind.Admission) error {
		pod := admissionlib.NewPod(a)
		if pod == nil {
			return nil
		}
		ns, err := a.NamespaceObject(ctx)
		if err != nil {
			return err
		}
		if err := s.Check(pod.Spec.NodeSelector, ns); err != nil {
			return apierrors.NewForbidden(a.Def.Resource(), pod.Name, err)
		}
		return nil
	}
}

// podTolerations rejects a pod with tolerations that its namespace does not allow.
func podTolerations(t placement.Tolerations) func(context.Context, *kind.Admission) error {
	return func(ctx context.Context, a *kind.Admission) error {
		pod, ok := a.Object.(*corev1.Pod)
		if !ok || a.Sub != "" || len(pod.Spec.Tolerations) == 0 {
			return nil
		}
		ns, err := a.NamespaceObject(ctx)
		if err != nil {
			return err
		}
		return t.Check(pod.Spec.Tolerations, ns)
	}
}
