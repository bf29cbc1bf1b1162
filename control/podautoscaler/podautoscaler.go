// Package podautoscaler has the controller of HorizontalPodAutoscalers: every few seconds it reads the metrics of a workload,
// computes how many Pods would bring them to the target, and scales the workload within the limits of the autoscaler. Recent
// recommendations and changes are kept in memory: after a restart the controller starts from the current number of Pods, and
// does not scale down before a stabilization window has passed.
package podautoscaler

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// Mapper returns the resources with a kind, in the order in which they are served.
type Mapper func(schema.GroupKind) ([]schema.GroupResource, error)

// Options are the defaults for autoscalers that do not set their own. Each zero value stands for upstream's default.
type Options struct {
	// Period is the interval at which each autoscaler is reconciled: 15 seconds.
	Period time.Duration
	// Window is the stabilization window for scaling down: 5 minutes.
	Window time.Duration
	// Tolerance is by how much usage may differ from the target without a change: a tenth.
	Tolerance float64
	// Startup is for how long after its start the CPU usage of a Pod may not be typical: 5 minutes.
	Startup time.Duration
	// FirstReady is for how long after its start an unready Pod is considered never to have been ready: 30 seconds.
	FirstReady time.Duration
}

func (o *Options) fill() {
	set := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	set(&o.Period, 15*time.Second)
	set(&o.Window, 5*time.Minute)
	set(&o.Startup, 5*time.Minute)
	set(&o.FirstReady, 30*time.Second)
	if o.Tolerance == 0 {
		o.Tolerance = 0.1
	}
}

// Controller returns the controller.
func Controller(metrics Metrics, resources Mapper, options Options) control.Controller {
	options.fill()
	l := &reconciler{metrics: metrics, resources: resources, options: options, histories: newHistories()}
	return control.Controller{
		Name: "horizontal-pod-autoscaler", For: gr.HorizontalPodAutoscalers, When: hasNewSpec, Workers: 5,
		Reads: []schema.GroupResource{gr.Pods},
		Writes: []control.Write{
			{On: gr.HorizontalPodAutoscalers, Do: "update/status"},
			{On: control.Any(), Do: "get/scale update/scale"},
		},
		Reconcile: l.reconcile,
	}
}

// hasNewSpec ignores changes of the status, which are those of the controller itself.
func hasNewSpec(old, now kind.Object) bool {
	return old == nil || now == nil || old.GetGeneration() != now.GetGeneration() || old.GetUID() != now.GetUID()
}
