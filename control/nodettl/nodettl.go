// Package nodettl annotates Nodes with how long their kubelets may cache a Secret or ConfigMap: the more nodes there are, the
// longer. When the number of nodes changes, the annotation of a Node is updated at its next status write, within minutes.
package nodettl

import (
	"context"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/control"
	"proa.dev/kinds/lib/gr"
)

// Controller returns the controller.
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
			return 0, control.IgnoreNotFound(err)
		},
	}
}

// band is a range of the number of nodes with its time to live. Bands overlap, so that adding and removing one node does not
// change all Nodes each time.
type band struct{ min, max, seconds int }

func bands() []band {
	return []band{{0, 100, 0}, {90, 500, 15}, {450, 1000, 30}, {900, 2000, 60}, {1800, many, 300}}
}

// many is larger than any number of nodes.
const many = 1 << 30

// count returns the number of nodes, or a number in the last band if there are more.
func count(c *control.Cluster) (n int) {
	last := bands()[len(bands())-2].max
	for range c.View(gr.Nodes).List("") {
		if n++; n > last {
			return n
		}
	}
	return n
}

// decide returns the seconds that a node shall have, given those it has, or -1 for none. They are kept while the number of
// nodes allows it, and otherwise change to the nearest allowed value.
func decide(has, nodes int) int {
	fit := slices.DeleteFunc(bands(), func(b band) bool { return nodes < b.min || nodes > b.max })
	for _, b := range fit {
		if b.seconds >= has {
			return b.seconds
		}
	}
	return fit[len(fit)-1].seconds
}
