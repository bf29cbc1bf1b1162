package nodereports

import (
	"testing"
	"testing/synctest"

	discoveryv1 "k8s.io/api/discovery/v1"

	"proa.dev/hop"
)

// TestOnlyTheNodeOfAnEndpointKnowsItsAnswer checks that a node is believed about a first answer only if an endpoint of the slice is on it.
func TestOnlyTheNodeOfAnEndpointKnowsItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		answer := pull()
		answer.Verb, answer.Group, answer.Resource = hop.Answer, "discovery.k8s.io", "endpointslices"
		answer.Name, answer.UID = "slice", "u-slice"
		slice := w.objects["endpointslices.discovery.k8s.io/d/slice"].(*discoveryv1.EndpointSlice)
		slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, NodeName: new("b")}, {Addresses: []string{"10.0.0.2"}}}
		if got := w.send(t, answer); len(got) != 0 {
			t.Errorf("a node without an endpoint is believed: %+v", got)
		}
		slice.Endpoints[1].NodeName = new("a")
		if got := w.send(t, answer); len(got) != 1 || got[0].Verb != hop.Answer || got[0].Took[hop.Network] == 0 {
			t.Errorf("%+v", got)
		}
		answer.Group, answer.Resource, answer.Name, answer.UID = "", "pods", "mine", "u-mine"
		if got := w.send(t, answer); len(got) != 1 {
			t.Errorf("an answer about a Pod is believed: %+v", got)
		}
		answer.Resource, answer.Name, answer.UID = "services", "svc", "u-svc"
		if got := w.send(t, answer); len(got) != 1 {
			t.Errorf("an answer about a Service is believed: %+v", got)
		}
	})
}
