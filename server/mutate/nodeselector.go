package mutate

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"proa.dev/kinds/kind"
)

// Of the configuration of PodNodeSelector: everybody's selector, and the annotation by which a namespace has its own.
const (
	everybodysSelector  = "clusterDefaultNodeSelector"
	selectorOfNamespace = "scheduler.alpha.kubernetes.io/node-selector"
)

// podNodeSelector keeps the pods of a namespace on certain nodes. What a namespace may select at all is in the configuration.
func podNodeSelector(text []byte) (func(context.Context, *kind.Admission) error, error) {
	var c struct {
		Selectors map[string]string `json:"podNodeSelectorPluginConfig"`
	}
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		return nil, err
	}
	sets := map[string]labels.Set{}
	for name, selector := range c.Selectors {
		var err error
		if sets[name], err = labels.ConvertSelectorToLabelsMap(selector); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return func(ctx context.Context, a *kind.Admission) error {
		pod := newPod(a)
		if pod == nil {
			return nil
		}
		ns, err := namespaceOf(ctx, a)
		if err != nil {
			return err
		}
		wanted := sets[everybodysSelector]
		if text, ok := ns.Annotations[selectorOfNamespace]; ok {
			if wanted, err = labels.ConvertSelectorToLabelsMap(text); err != nil {
				return err
			}
		}
		if err := selectNodes(pod, wanted, sets[a.Namespace]); err != nil {
			return apierrors.NewForbidden(a.Def.Resource(), pod.Name, err)
		}
		return nil
	}, nil
}

// selectNodes adds to the selector of a pod. An empty list of what is allowed allows everything.
func selectNodes(pod *corev1.Pod, wanted, allowed labels.Set) error {
	if labels.Conflicts(wanted, pod.Spec.NodeSelector) {
		return fmt.Errorf("pod node label selector conflicts with its namespace node label selector")
	}
	pod.Spec.NodeSelector = labels.Merge(wanted, pod.Spec.NodeSelector)
	if len(allowed) == 0 {
		return nil
	}
	for key, value := range pod.Spec.NodeSelector {
		if had, ok := allowed[key]; !ok || had != value {
			return fmt.Errorf("pod node label selector labels conflict with its namespace whitelist")
		}
	}
	return nil
}

// namespaceOf is the namespace of a write.
func namespaceOf(ctx context.Context, a *kind.Admission) (*corev1.Namespace, error) {
	o, err := a.Door.Get(ctx, schema.GroupResource{Resource: "namespaces"}, "", a.Namespace)
	if apierrors.IsNotFound(err) {
		return nil, err
	}
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	ns, ok := o.(*corev1.Namespace)
	if !ok {
		return nil, fmt.Errorf("unexpected type %T", o)
	}
	return ns, nil
}
