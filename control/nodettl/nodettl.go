// Package nodettl annotates Nodes with how long their kubelets may keep a Secret or ConfigMap before they read it again: the
// longer, the more nodes there are. Nodes learn of a change of the number at their next write, which is minutes away at most.
package nodettl

import (
	"context"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/control"
	"proa.dev/kinds/gr"
)

// Controller returns the loop.
func Controller() control.Controller {
	return control.Controller{
		Name: "ttl-controller", For: gr.Nodes, Workers: 5, Writes: []control.Write{{On: gr.Nodes, Do: "update"}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			node, found := control.Get[*corev1.Node](c, gr.Nodes, "", k.Name)
			if !found || node.DeletionTimestamp != nil {
				return 0, nil
			}
			has, err := strconv.Atoi(node.Annotations[corev1.ObjectTTLAnnotationKey])
			if err != nil {
				has = -1
			}
			wants := decide(has, count(c))
			if has == wants {
				return 0, nil
			}
			next := node.DeepCopy()
			if next.Annotations == nil {
				next.Annotations = map[string]string{}
			}
			next.Annotations[corev1.ObjectTTLAnnotationKey] = strconv.Itoa(wants)
			_, err = c.Update(ctx, gr.Nodes, next, "")
			return 0, control.Gone(err)
		},
	}
}

// band is a range of the number of nodes. Bands overlap, so that a node more or less does not change all nodes again and again.
type band struct{ least, most, seconds int }

func bands() []band {
	return []band{{0, 100, 0}, {90, 500, 15}, {450, 1000, 30}, {900, 2000, 60}, {1800, many, 300}}
}

// many is more than anybody counts to here.
const many = 1 << 30

// count is the number of nodes, as far as it makes a difference.
func count(c *control.Cluster) (n int) {
	last := bands()[len(bands())-2].most
	for range c.View(gr.Nodes).List("") {
		if n++; n > last {
			return n
		}
	}
	return n
}

// decide is how many seconds a node shall have that has some, or -1 for none. What it has stays while the number of nodes allows
// it; otherwise it moves no further than it must.
func decide(has, nodes int) int {
	fit := slices.DeleteFunc(bands(), func(b band) bool { return nodes < b.least || nodes > b.most })
	for _, b := range fit {
		if b.seconds >= has {
			return b.seconds
		}
	}
	return fit[len(fit)-1].seconds
}
