package controllers

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/control"
	"proa.dev/control/controltest"
	"proa.dev/control/localpath"
	"proa.dev/control/persistentvolume"
	"proa.dev/control/volumeprotection"
	"proa.dev/kinds/lib/gr"
	words "proa.dev/kinds/lib/localvolume"
)

// agent acts as the agent of Nodes with the annotation agent: it removes the folders that it is asked to.
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
			return 0, control.IgnoreNotFound(err)
		},
	}
}

// TestLocalPath also runs the controllers that bind claims and protect objects in use; the scripts act as the scheduler.
func TestLocalPath(t *testing.T) {
	t.Parallel()
	controllers := persistentvolume.Controllers(persistentvolume.Config{})
	controllers[1].Name += "-volumes" // every controller of a script needs its own name
	controllers = append(controllers, volumeprotection.Controllers()...)
	controltest.Scripts(t, "../../control/localpath/testdata/*.txt", append(append(controllers, localpath.Controllers()...), agent())...)
}
