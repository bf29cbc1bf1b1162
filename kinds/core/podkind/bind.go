package podkind

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/core/podspec"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/check"
)

func podResource() schema.GroupResource { return schema.GroupResource{Resource: "pods"} }

func bindingBody() *kind.Body {
	return &kind.Body{
		GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Binding"),
		New:              func() kind.Object { return &corev1.Binding{} },
	}
}

// Bindings assign pods to nodes. They are the older form of the binding subresource: nothing is stored.
func Bindings() *kind.Def {
	return kind.Define(kind.Resource[corev1.Binding]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Binding"}, Plural: "bindings", Verbs: []string{"create"},
		},
		Act: func(ctx context.Context, d kind.Server, call *kind.Call) (kind.Object, error) {
			call.Name = call.Body.GetName()
			return bindPod(ctx, d, call, nil)
		},
		Answer: func(context.Context, kind.Server, *corev1.Binding) error {
			return apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "bindings"}, "create")
		},
	})
}

// bindPod assigns a pod to the node that a scheduler has chosen.
func bindPod(ctx context.Context, d kind.Server, call *kind.Call, _ *corev1.Pod) (kind.Object, error) {
	b, ok := call.Body.(*corev1.Binding)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a Binding object: %T", call.Body))
	}
	if call.Name != b.Name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Binding object")
	}
	if errs := validateBinding(b); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	if call.Name == "" {
		return nil, apierrors.NewBadRequest("Name parameter required.")
	}
	_, err := d.Modify(ctx, podResource(), call.Namespace, call.Name, call.DryRun, func(o kind.Object) error {
		return assignNode(o.(*corev1.Pod), b)
	})
	return nil, err
}

func validateBinding(b *corev1.Binding) field.ErrorList {
	target := field.NewPath("target")
	var errs field.ErrorList
	if k := b.Target.Kind; k != "" && k != "Node" {
		errs = append(errs, field.NotSupported(target.Child("kind"), k, []string{"Node", "<empty>"}))
	}
	if b.Target.Name == "" {
		errs = append(errs, field.Required(target.Child("name"), ""))
	} else if len(errs) == 0 {
		errs = append(errs, check.DNSSubdomain(b.Target.Name, target.Child("name"))...)
	}
	return errs
}

// assignNode sets the node of a pod that has none, with the labels and annotations of the binding.
func assignNode(p *corev1.Pod, b *corev1.Binding) error {
	stale := func(what string, wanted, is any) error {
		return apierrors.NewConflict(podResource(), p.Name, fmt.Errorf(
			"StorageError: invalid object, Code: 4, Key: /pods/%s/%s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: %s in precondition: %v, %s in object meta: %v",
			p.Namespace, p.Name, what, wanted, what, is))
	}
	refuse := func(format string, args ...any) error {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, p.Name, fmt.Errorf(format, args...))
	}
	switch {
	case b.UID != "" && b.UID != p.UID:
		return stale("UID", b.UID, p.UID)
	case b.ResourceVersion != "" && b.ResourceVersion != p.ResourceVersion:
		return stale("ResourceVersion", b.ResourceVersion, p.ResourceVersion)
	case p.DeletionTimestamp != nil:
		return refuse("pod %s is being deleted, cannot be assigned to a host", p.Name)
	case p.Spec.NodeName != "":
		return refuse("pod %v is already assigned to node %q", p.Name, p.Spec.NodeName)
	case len(p.Spec.SchedulingGates) != 0:
		return refuse("pod %v has non-empty .spec.schedulingGates", p.Name)
	}
	p.Spec.NodeName = b.Target.Name
	p.Status.NominatedNodeName = ""
	p.Annotations = mergeMaps(p.Annotations, b.Annotations)
	podspec.DropInitContainerAnnotations(p.Annotations)
	p.Labels = mergeMaps(p.Labels, b.Labels)
	setPodCondition(&p.Status, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
	return nil
}

func mergeMaps(into, from map[string]string) map[string]string {
	if into == nil && len(from) > 0 {
		into = map[string]string{}
	}
	maps.Copy(into, from)
	return into
}
