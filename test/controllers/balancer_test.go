package controllers

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/control/balancer"
	"proa.dev/control/cloud"
	"proa.dev/control/controltest"
)

// kept are ports that the tests keep for the system.
func kept() []balancer.Port {
	return []balancer.Port{{Protocol: corev1.ProtocolTCP, Number: 22, Owner: "SSH"}, {Protocol: corev1.ProtocolTCP, Number: 10250, Owner: "the node agent"}}
}

// ranges are the networks of Pods and Services in the tests.
func ranges() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("10.244.0.0/16")}
}

func TestBalancer(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/balancer/testdata/scripts/*.txt", cloud.Controllers(balancer.Provider(kept(), ranges()), nil)...)
}

// TestBalancerOff runs the loop of a cluster whose load balancers come from somebody else.
func TestBalancerOff(t *testing.T) {
	t.Parallel()
	p := balancer.Provider(nil, nil)
	p.Off = true
	controltest.Scripts(t, "../../control/balancer/testdata/off/*.txt", cloud.Controllers(p, nil)...)
}
