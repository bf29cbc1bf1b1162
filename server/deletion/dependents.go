package deletion

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"proa.dev/kinds/kind"
)

// WarnOfDependents warns of what becomes of dependents when the client does not choose a propagation policy. Options that are
// not valid are refused later, and need no warning.
func WarnOfDependents(def *kind.Def, o *metav1.DeleteOptions, warn func(texts ...string)) {
	text := def.Storage().Deletion.Warning
	if text == "" || o != nil && len(metav1validation.ValidateDeleteOptions(o)) > 0 {
		return
	}
	if o == nil || o.PropagationPolicy == nil && o.OrphanDependents == nil {
		warn(text)
	}
}
