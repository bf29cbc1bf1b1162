package controllers

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/control"
	"proa.dev/control/controltest"
	"proa.dev/control/localpath"
	"proa.dev/control/protection"
	"proa.dev/control/volume"
	"proa.dev/kinds/gr"
	words "proa.dev/kinds/localpath"
)

// agent plays the agents of Nodes that have the annotation agent: it removes whatever folders it is asked to.
func agent() control.Controller {
	return control.Controller{
		Name: "agent", For: gr.Nodes, Writes: []control.Write{{On: gr.Nodes, Do: "update"}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			n, found := control.Get[*corev1.Node](c, gr.Nodes, "", k.Name)
			if !found || n.Annotations["agent"] == "" {
				return 0, nil
			}
			work, changed := words.WorkOf(n), false
			for name, state := range work {
				if state == words.Remove {
					work[name], changed = words.Removed, true
				}
			}
			if !changed {
				return 0, nil
			}
			n = n.DeepCopy()
			words.SetWork(n, work)
			_, err := c.Update(ctx, gr.Nodes, n, "")
			return 0, control.Gone(err)
		},
	}
}

// TestLocalPath plays with the loops that bind claims and protect what is used; the scheduler is played by the scripts.
func TestLocalPath(t *testing.T) {
	t.Parallel()
	loops := volume.Controllers(volume.Config{})
	loops[1].Name += "-volumes" // the harness wants every loop to have a name of its own
	loops = append(loops, protection.Controllers()...)
	controltest.Scripts(t, "../../control/localpath/testdata/*.txt", append(append(loops, localpath.Controllers()...), agent())...)
}
