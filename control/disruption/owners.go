package disruption

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// finderFor returns the finder of a namespace. It finds built-in workloads in the views, and reads the scale subresource of others.
func (r *reconciler) finderFor(ctx context.Context, c *control.Cluster, namespace string) finder {
	return func(ref *metav1.OwnerReference) (*owner, error) {
		gv, err := schema.ParseGroupVersion(ref.APIVersion)
		if err != nil {
			return nil, err
		}
		if o := ownerInViews(c, namespace, gv.Group, ref); o != nil {
			return o, nil
		}
		return r.ownerByScale(ctx, c, namespace, gv.WithKind(ref.Kind), ref)
	}
}

// ownerInViews returns an owner from the views. For a ReplicaSet that a Deployment controls, it is the Deployment.
func ownerInViews(c *control.Cluster, namespace, group string, ref *metav1.OwnerReference) *owner {
	switch {
	case ref.Kind == "ReplicationController" && group == "":
		return ownerByRef[*corev1.ReplicationController](c, gr.ReplicationControllers, namespace, ref)
	case ref.Kind == "StatefulSet" && group == "apps":
		return ownerByRef[*appsv1.StatefulSet](c, gr.StatefulSets, namespace, ref)
	case ref.Kind != "ReplicaSet" || !appsGroup(group):
		return nil
	}
	set := ownerByRef[*appsv1.ReplicaSet](c, gr.ReplicaSets, namespace, ref)
	if set == nil {
		return nil
	}
	rs, _ := control.Get[*appsv1.ReplicaSet](c, gr.ReplicaSets, namespace, ref.Name)
	up := metav1.GetControllerOf(rs)
	if up == nil || up.Kind != "Deployment" {
		return set
	}
	if gv, err := schema.ParseGroupVersion(up.APIVersion); err != nil || !appsGroup(gv.Group) {
		return nil
	}
	return ownerByRef[*appsv1.Deployment](c, gr.Deployments, namespace, up)
}

func appsGroup(group string) bool { return slices.Contains([]string{"apps", "extensions"}, group) }

// ownerByRef returns the object of a reference, but not another of the same name.
func ownerByRef[T kind.Object](c *control.Cluster, on schema.GroupResource, namespace string, ref *metav1.OwnerReference) *owner {
	o, found := control.Get[T](c, on, namespace, ref.Name)
	if !found || o.GetUID() != ref.UID {
		return nil
	}
	n, _ := scaleOf(o)
	return &owner{o.GetUID(), n}
}

// ownerByScale returns an owner by its subresource scale, which any kind may have.
func (r *reconciler) ownerByScale(ctx context.Context, c *control.Cluster, namespace string, gvk schema.GroupVersionKind,
	ref *metav1.OwnerReference) (*owner, error) {
	on, scales, err := r.mapper(gvk)
	if err != nil {
		return nil, err
	}
	if !scales {
		return nil, fmt.Errorf("%s does not implement the scale subresource", on.String())
	}
	o, err := c.Get(ctx, on, namespace, ref.Name, "scale")
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s, ok := o.(*autoscalingv1.Scale)
	if !ok || s.UID != ref.UID {
		return nil, nil
	}
	return &owner{s.UID, s.Spec.Replicas}, nil
}
