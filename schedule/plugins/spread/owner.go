package spread

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/lib/gr"
	"proa.dev/schedule/framework"
)

// ownerSelector returns the Pod selector of an owner. supported reports that owners of its kind have a selector, found
// that the owner exists.
func ownerSelector(c framework.Cluster, namespace string, owner *metav1.OwnerReference) (selector labels.Selector, supported, found bool) {
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
