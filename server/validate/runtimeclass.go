package validate

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
	"proa.dev/server/admissionlib"
)

// runtimeClass rejects pods whose overhead is not that of their runtime class.
func runtimeClass(ctx context.Context, a *kind.Admission) error {
	pod := admissionlib.NewPod(a)
	if pod == nil || pod.Spec.RuntimeClassName == nil && pod.Spec.Overhead == nil {
		return nil
	}
	var class *nodev1.RuntimeClass
	if name := pod.Spec.RuntimeClassName; name != nil {
		o, err := a.Server.Get(ctx, schema.GroupResource{Group: nodev1.GroupName, Resource: "runtimeclasses"}, "", *name)
		if apierrors.IsNotFound(err) {
			return a.Forbidf("pod rejected: RuntimeClass %q not found", *name)
		}
		if err != nil {
			return err
		}
		class, _ = o.(*nodev1.RuntimeClass)
	}
	if err := checkOverhead(pod, class); err != nil {
		return a.Forbid(err)
	}
	return nil
}

func checkOverhead(pod *corev1.Pod, class *nodev1.RuntimeClass) error {
	switch {
	case class != nil && class.Overhead != nil:
		if !equality.Semantic.DeepEqual(class.Overhead.PodFixed, pod.Spec.Overhead) {
			return errors.New("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
		}
	case pod.Spec.Overhead != nil:
		return errors.New("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
	}
	return nil
}
