// Package autoscale is the loop of HorizontalPodAutoscalers: every few seconds it measures what a workload does, works
// out how many Pods would bring that to the target, and scales, as fast and as far as its rules allow. What it remembers
// of recent recommendations and changes it keeps in memory: a new process begins with what it finds, and is careful for
// as long as a window lasts.
package autoscale

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// Mapper finds the resources that objects of a kind may be. Those that are served first come first.
type Mapper func(schema.GroupKind) ([]schema.GroupResource, error)

// Options are how the loop behaves where an autoscaler does not say otherwise. The zero value of each stands for the
// usual one.
type Options struct {
	// Period is how often each autoscaler is looked at: 15 seconds.
	Period time.Duration
	// Window is for how long the highest recommendation holds before the workload shrinks: 5 minutes.
	Window time.Duration
	// Tolerance is by how much usage may be off the target without a change: a tenth.
	Tolerance float64
	// Startup is for how long after its start the CPU of a Pod may not be typical of it: 5 minutes.
	Startup time.Duration
	// FirstReady is how long after its start a Pod may have become unready without ever having been ready: 30 seconds.
	FirstReady time.Duration
}

func (o *Options) fill() {
	set := func(d *time.Duration, usual time.Duration) {
		if *d == 0 {
			*d = usual
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

// Controller returns the loop.
func Controller(metrics Metrics, resources Mapper, options Options) control.Controller {
	options.fill()
	l := &loop{metrics: metrics, resources: resources, options: options, memories: newMemories()}
	return control.Controller{
		Name: "horizontal-pod-autoscaler", For: gr.HorizontalPodAutoscalers, When: matters, Workers: 5,
		Reads: []schema.GroupResource{gr.Pods},
		Writes: []control.Write{
			{On: gr.HorizontalPodAutoscalers, Do: "update/status"},
			{On: control.Any(), Do: "get/scale update/scale"},
		},
		Reconcile: l.reconcile,
	}
}

// matters leaves out changes of the status, which are the loop's own.
func matters(old, now kind.Object) bool {
	return old == nil || now == nil || old.GetGeneration() != now.GetGeneration() || old.GetUID() != now.GetUID()
}
