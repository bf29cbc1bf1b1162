package controllers

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/control/cloud"
	"proa.dev/control/cloud/nodeloadbalancer"
	"proa.dev/control/controltest"
)

// reservedPorts returns the reserved ports of the tests.
func reservedPorts() []nodeloadbalancer.Port {
	return []nodeloadbalancer.Port{{Protocol: corev1.ProtocolTCP, Number: 22, Owner: "SSH"},
		{Protocol: corev1.ProtocolTCP, Number: 10250, Owner: "the node agent"}}
}

// clusterRanges returns the networks of Pods and Services in the tests.
func clusterRanges() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("10.244.0.0/16")}
}

func TestNodeLoadBalancer(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/cloud/nodeloadbalancer/testdata/scripts/*.txt",
		cloud.Controllers(nodeloadbalancer.Provider(reservedPorts(), clusterRanges()), nil)...)
}

// TestNodeLoadBalancerOff runs the controller of a cluster whose load balancers come from another provider.
func TestNodeLoadBalancerOff(t *testing.T) {
	t.Parallel()
	p := nodeloadbalancer.Provider(nil, nil)
	p.Off = true
	controltest.Scripts(t, "../../control/cloud/nodeloadbalancer/testdata/off/*.txt", cloud.Controllers(p, nil)...)
}
