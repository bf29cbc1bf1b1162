package framework

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"proa.dev/client"
	"proa.dev/schedule/deviceallocator"
	"proa.dev/schedule/eventseries"
)

// DecodeArgs decodes the arguments of a plugin. Unknown fields are an error.
func DecodeArgs(raw json.RawMessage, into any) error {
	if len(raw) == 0 {
		return nil
	}
	strict, err := kjson.UnmarshalStrict(raw, into)
	if err != nil {
		return err
	}
	return errors.Join(strict...)
}

// Deps are the dependencies of plugins.
type Deps struct {
	Client client.Client
	Log    *slog.Logger
	// Views are the views of the resources that plugins read. They are open when the first Pod is prepared.
	Views Cluster
	// Events records Events about Pods.
	Events *eventseries.Recorder
	// PreemptionAttempts and PreemptionVictims are metrics of preemptions; they may be nil.
	PreemptionAttempts prometheus.Counter
	PreemptionVictims  prometheus.Observer
	// Activate moves Pods to the active queue, so that they are tried now.
	Activate func(...types.UID)
	// Go runs a function in the background. Its context ends with the scheduler.
	Go func(func(context.Context))
	// Select evaluates the CEL selectors of devices; nil means that they cannot be evaluated.
	Select deviceallocator.Selector
	// Gangs adds gang scheduling to the default profile.
	Gangs bool
	// IgnoredResources are resources that an extender manages and the scheduler ignores.
	IgnoredResources []string
}
