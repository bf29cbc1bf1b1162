// Package placement says where the pods of a namespace may go: which nodes they select, and which taints they tolerate. It
// is pure, because hop 4 gives pods what they should have and hop 6 looks whether they still have it.
package placement

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// Selectors are the node selectors of an administrator: one for all namespaces without their own, and for some the list of
// what they may select at all.
type Selectors map[string]labels.Set

// everybody is the name of the selector for all, and ofNamespace the annotation with a namespace's own.
const (
	everybody   = "clusterDefaultNodeSelector"
	ofNamespace = "scheduler.alpha.kubernetes.io/node-selector"
)

// ReadSelectors reads the configuration of PodNodeSelector.
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

// Of is what all pods of a namespace select.
func (s Selectors) Of(ns *corev1.Namespace) (labels.Set, error) {
	text, own := ns.Annotations[ofNamespace]
	if !own {
		return s[everybody], nil
	}
	return labels.ConvertSelectorToLabelsMap(text)
}

// Check says what is wrong with what a pod of a namespace selects.
func (s Selectors) Check(selected labels.Set, ns *corev1.Namespace) error {
	wanted, err := s.Of(ns)
	if err != nil {
		return err
	}
	if labels.Conflicts(wanted, selected) {
		return errors.New("pod node label selector conflicts with its namespace node label selector")
	}
	allowed := s[ns.Name]
	if len(allowed) == 0 { // everything
		return nil
	}
	for key, value := range selected {
		if had, ok := allowed[key]; !ok || had != value {
			return errors.New("pod node label selector labels conflict with its namespace whitelist")
		}
	}
	return nil
}
