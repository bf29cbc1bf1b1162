package core

import (
	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/kind"
)

// eventTTL is how long an event is kept, in seconds.
const eventTTL = 3600

// Events tell what happened to an object.
func Events() *kind.Def {
	return kind.Define(kind.Resource[corev1.Event]{
		Version: "v1", Kind: "Event", Plural: "events", Short: []string{"ev"}, TTL: eventTTL, CreateOnUpdate: true,
	})
}
