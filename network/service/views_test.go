package service

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"proa.dev/network/nettest"
)

// views holds the views of a proxy, with the objects of the test.
type views struct {
	t                       testing.TB
	services, slices, nodes *nettest.View
}

func newViews(t testing.TB) *views {
	return &views{t, nettest.NewView(), nettest.NewView(), nettest.NewView()}
}

func (v *views) apply(text string) {
	v.t.Helper()
	for _, o := range nettest.Objects(v.t, text) {
		switch o.(type) {
		case *corev1.Service:
			v.services.Put(o)
		case *discoveryv1.EndpointSlice:
			v.slices.Put(o)
		default:
			v.nodes.Put(o)
		}
	}
}

// slice returns an EndpointSlice as YAML. Each endpoint is an address, followed by its state or the name of its node.
func slice(name, service string, portNumber int, protocol string, endpoints ...string) string {
	family := "IPv4"
	var list strings.Builder
	for _, e := range endpoints {
		words := strings.Fields(e)
		if strings.Contains(words[0], ":") {
			family = "IPv6"
		}
		fmt.Fprintf(&list, "- addresses: [%q]\n", words[0])
		conditions := "ready: true"
		for _, w := range words[1:] {
			switch w {
			case "terminating":
				conditions = "{ready: false, serving: true, terminating: true}"
			case "unready":
				conditions = "{ready: false, serving: false}"
			default:
				fmt.Fprintf(&list, "  nodeName: %s\n", w)
			}
		}
		fmt.Fprintf(&list, "  conditions: %s\n", "{"+strings.Trim(conditions, "{}")+"}")
	}
	return fmt.Sprintf(`
kind: EndpointSlice
metadata: {name: %s, labels: {kubernetes.io/service-name: %s}}
addressType: %s
ports: [{name: "", port: %d, protocol: %s}]
endpoints:
%s`, name, service, family, portNumber, protocol, list.String())
}
