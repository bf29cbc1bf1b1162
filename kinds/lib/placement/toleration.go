package placement

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Tolerations are the tolerations that an administrator configures for the pods of namespaces without their own:
// defaults, and those that are allowed at all.
type Tolerations struct {
	metav1.TypeMeta `json:",inline"`

	Default   []corev1.Toleration `json:"default"`
	Whitelist []corev1.Toleration `json:"whitelist"`
}

// The annotations with the tolerations of a namespace.
const (
	given   = "scheduler.alpha.kubernetes.io/defaultTolerations"
	allowed = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
)

// ReadTolerations parses the configuration of PodTolerationRestriction.
func ReadTolerations(text []byte) (t Tolerations, err error) {
	return t, yaml.UnmarshalStrict(text, &t)
}

// Of returns the tolerations that new pods of a namespace get.
func (t Tolerations) Of(ns *corev1.Namespace) ([]corev1.Toleration, error) {
	return annotatedTolerations(ns, given, t.Default)
}

// annotatedTolerations returns the tolerations in an annotation of a namespace. A namespace without it has those of the cluster,
// one with an empty annotation has none.
func annotatedTolerations(ns *corev1.Namespace, key string, cluster []corev1.Toleration) (out []corev1.Toleration, err error) {
	text, own := ns.Annotations[key]
	switch {
	case !own:
		return cluster, nil
	case text == "":
		return nil, nil
	}
	return out, json.Unmarshal([]byte(text), &out)
}

// Check returns an error if a pod of a namespace may not have its tolerations. An empty list of allowed tolerations
// allows all.
func (t Tolerations) Check(has []corev1.Toleration, ns *corev1.Namespace) error {
	may, err := annotatedTolerations(ns, allowed, t.Whitelist)
	if err != nil || len(may) == 0 {
		return err
	}
	for _, toleration := range has {
		if slices.ContainsFunc(may, func(w corev1.Toleration) bool { return covers(&w, &toleration) }) {
			continue
		}
		whose := "cluster"
		if _, own := ns.Annotations[allowed]; own {
			whose = "namespace"
		}
		return fmt.Errorf("pod tolerations (possibly merged with namespace default tolerations) conflict with its %s whitelist", whose)
	}
	return nil
}

// Merge joins two lists of tolerations without those that another one covers.
func Merge(first, second []corev1.Toleration) (merged []corev1.Toleration) {
	both := slices.Concat(first, second)
	for i, t := range both {
		covered := slices.ContainsFunc(merged, func(other corev1.Toleration) bool { return covers(&other, &t) }) ||
			slices.ContainsFunc(both[i+1:], func(other corev1.Toleration) bool {
				return covers(&other, &t) && !equality.Semantic.DeepEqual(other, t) // of two equal ones the first is kept
			})
		if !covered {
			merged = append(merged, t)
		}
	}
	return merged
}

// covers reports whether a tolerates all taints that b does.
func covers(a, b *corev1.Toleration) bool {
	if equality.Semantic.DeepEqual(a, b) {
		return true
	}
	everyKey := a.Key == "" && a.Operator == corev1.TolerationOpExists
	if a.Key != b.Key && !everyKey || a.Effect != b.Effect && a.Effect != "" {
		return false
	}
	if a.Effect == corev1.TaintEffectNoExecute && a.TolerationSeconds != nil &&
		(b.TolerationSeconds == nil || *b.TolerationSeconds > *a.TolerationSeconds) {
		return false
	}
	switch a.Operator {
	case corev1.TolerationOpEqual, "":
		return b.Operator == corev1.TolerationOpEqual && a.Value == b.Value
	case corev1.TolerationOpExists:
		return true
	}
	return false
}

// Tolerates reports whether a toleration matches a taint. No key matches all keys, no effect all effects. The
// operators Lt and Gt are of a disabled alpha feature, and match nothing.
func Tolerates(t *corev1.Toleration, taint *corev1.Taint) bool {
	if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
		return false
	}
	switch t.Operator {
	case "", corev1.TolerationOpEqual:
		return t.Value == taint.Value
	case corev1.TolerationOpExists:
		return true
	}
	return false
}
