package placement

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// FuzzNamespace checks that configurations and annotations of namespaces are parsed or refused, and that pods pass the
// check of what they are given by them.
func FuzzNamespace(f *testing.F) {
	f.Add([]byte("podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: a=b}"), "region=west", `[{"key":"a","operator":"Exists"}]`, "")
	f.Add([]byte("default: [{key: a, operator: Exists}]\nwhitelist: [{key: a}]"), "a=b,a=c", `[]`, `[{"operator":"Exists"}]`)
	f.Add([]byte("{"), "=", "null", "{}")
	f.Fuzz(func(t *testing.T, config []byte, selector, some, may string) {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns",
			Annotations: map[string]string{selectorAnnotation: selector, given: some, allowed: may}}}
		if s, err := ReadSelectors(config); err == nil {
			delete(s, ns.Name) // a list of what is allowed may contradict what is given
			if wanted, err := s.Of(ns); err == nil {
				if err := s.Check(labels.Merge(wanted, nil), ns); err != nil {
					t.Errorf("%v is given, and %v", wanted, err)
				}
			}
		}
		if tolerations, err := ReadTolerations(config); err == nil {
			if got, err := tolerations.Of(ns); err == nil {
				_ = tolerations.Check(Merge(got, got), ns)
			}
		}
	})
}
