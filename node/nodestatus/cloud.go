package nodestatus

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// What nodes and the controllers of a cloud have agreed upon.
const (
	// uninitialized is the taint of nodes that the cloud has not looked at yet.
	uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
	// providedIP is the annotation in which a node tells the cloud which of its addresses it uses.
	providedIP = "alpha.kubernetes.io/provided-node-ip"
)

// taints are those of a Node that is made. One that a cloud describes takes no Pods before that is done.
func (c *Config) taints() (out []corev1.Taint) {
	out = append(out, c.Taints...)
	if c.Cloud {
		out = append(out, corev1.Taint{Key: uninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule})
	}
	return out
}

// tellCloud writes down which addresses the node was told to use, if there is a cloud to read it, and says whether anything was wrong.
func (c *Config) tellCloud(o *corev1.Node) (changed bool) {
	have, has := o.Annotations[providedIP]
	if !c.Cloud || len(c.Addresses) == 0 {
		delete(o.Annotations, providedIP)
		return has
	}
	var ips []string
	for _, a := range c.Addresses {
		ips = append(ips, a.String())
	}
	want := strings.Join(ips, ",")
	if o.Annotations == nil {
		o.Annotations = map[string]string{}
	}
	o.Annotations[providedIP] = want
	return have != want
}
