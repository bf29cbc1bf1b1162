package nodestatus

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// These names are an agreement between nodes and cloud controller managers.
const (
	// taintUninitialized is the taint of nodes that the cloud controller manager has not initialized yet.
	taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
	// annotationProvidedIP is the annotation in which a node tells the cloud controller manager which addresses it uses.
	annotationProvidedIP = "alpha.kubernetes.io/provided-node-ip"
)

// taints returns the taints of a new Node. A node of a cloud accepts no Pods before it is initialized.
func (c *Config) taints() (out []corev1.Taint) {
	out = append(out, c.Taints...)
	if c.Cloud {
		out = append(out, corev1.Taint{Key: taintUninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule})
	}
	return out
}

// setProvidedIPs sets the annotation of the configured addresses, or removes it without a cloud, and reports whether it was
// wrong.
func (c *Config) setProvidedIPs(o *corev1.Node) (changed bool) {
	have, has := o.Annotations[annotationProvidedIP]
	if !c.Cloud || len(c.Addresses) == 0 {
		delete(o.Annotations, annotationProvidedIP)
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
	o.Annotations[annotationProvidedIP] = want
	return have != want
}
