// Package placement decides where the pods of a namespace may run: which nodes they select, and which taints they tolerate. Hop 4
// sets node selectors and tolerations by it, and hop 6 checks that pods still have them.
package placement

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// Selectors are the node selectors that an administrator configures: a default for namespaces without their own, and
// for some namespaces the labels that their pods may select at all.
type Selectors map[string]labels.Set

// defaultSelectorKey is the key of the default selector, and selectorAnnotation the annotation with the selector of a namespace.
const (
	defaultSelectorKey = "clusterDefaultNodeSelector"
	selectorAnnotation = "scheduler.alpha.kubernetes.io/node-selector"
)

// ReadSelectors parses the configuration of PodNodeSelector.
func ReadSelectors(text []byte) (Selectors, error) {
	var c struct {
		Selectors map[string]string `json:"podNodeSelectorPluginConfig"`
	}
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		return nil, err
	}
	out := Selectors{}
	for name, selector := range c.Selectors {
		var err error
		if out[name], err = labels.ConvertSelectorToLabelsMap(selector); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return out, nil
}

// Of returns the node selector of all pods of a namespace.
func (s Selectors) Of(ns *corev1.Namespace) (labels.Set, error) {
	text, own := ns.Annotations[selectorAnnotation]
	if !own {
		return s[defaultSelectorKey], nil
	}
	return labels.ConvertSelectorToLabelsMap(text)
}

// Check returns an error if a pod of a namespace may not have its node selector.
func (s Selectors) Check(selected labels.Set, ns *corev1.Namespace) error {
	wanted, err := s.Of(ns)
	if err != nil {
		return err
	}
	if labels.Conflicts(wanted, selected) {
		return errors.New("pod node label selector conflicts with its namespace node label selector")
	}
	allowed := s[ns.Name]
	if len(allowed) == 0 { // no restriction
		return nil
	}
	for key, value := range selected {
		if had, ok := allowed[key]; !ok || had != value {
			return errors.New("pod node label selector labels conflict with its namespace whitelist")
		}
	}
	return nil
}
