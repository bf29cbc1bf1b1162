package schedule

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// ownerSelector selects the pods of an owner. supported says that its kind has a selector, found that it is there.
func ownerSelector(c Cluster, namespace string, owner *metav1.OwnerReference) (selector labels.Selector, supported, found bool) {
	var on schema.GroupResource
	switch owner.APIVersion + "/" + owner.Kind {
	case "v1/ReplicationController":
		on = gr.ReplicationControllers
	case "apps/v1/ReplicaSet":
		on = gr.ReplicaSets
	case "apps/v1/StatefulSet":
		on = gr.StatefulSets
	default:
		return nil, false, false
	}
	o, found := c.Get(on, namespace, owner.Name)
	if !found {
		return nil, true, false
	}
	var err error
	switch o := o.(type) {
	case *corev1.ReplicationController:
		selector = labels.SelectorFromSet(o.Spec.Selector)
	case *appsv1.ReplicaSet:
		selector, err = metav1.LabelSelectorAsSelector(o.Spec.Selector)
	case *appsv1.StatefulSet:
		selector, err = metav1.LabelSelectorAsSelector(o.Spec.Selector)
	}
	if err != nil {
		return nil, true, true
	}
	return selector, true, true
}

// unsettles says whether a change of an object makes what was prepared for pods before it untrue. Only what pods of one
// template share is kept, and nothing is kept for an owner that was not known, so that few changes do.
func unsettles(r schema.GroupResource, was, is kind.Object) bool {
	switch r {
	case gr.Services:
		if was == nil || is == nil {
			return true
		}
		return !maps.Equal(was.(*corev1.Service).Spec.Selector, is.(*corev1.Service).Spec.Selector)
	case gr.DeviceClasses: // they stand for extended resources
		return true
	case gr.Namespaces:
		if was == nil || is == nil {
			return true
		}
		return !maps.Equal(was.GetLabels(), is.GetLabels())
	case gr.ReplicationControllers:
		return was != nil && is != nil &&
			!maps.Equal(was.(*corev1.ReplicationController).Spec.Selector, is.(*corev1.ReplicationController).Spec.Selector)
	case gr.ReplicaSets:
		return was != nil && is != nil &&
			!equality.Semantic.DeepEqual(was.(*appsv1.ReplicaSet).Spec.Selector, is.(*appsv1.ReplicaSet).Spec.Selector)
	case gr.StatefulSets:
		return was != nil && is != nil &&
			!equality.Semantic.DeepEqual(was.(*appsv1.StatefulSet).Spec.Selector, is.(*appsv1.StatefulSet).Spec.Selector)
	}
	// Claims, volumes and devices are looked up for one pod at a time.
	return false
}
