package dns

import "testing"

// TestAnswersForServices checks for which Services there is an address or an alias.
func TestAnswersForServices(t *testing.T) {
	s, err := New(world(t, `
kind: Namespace
metadata: {name: default}
---
kind: Service
metadata: {name: web}
spec: {clusterIP: 10.96.0.7, clusterIPs: [10.96.0.7]}
---
kind: Service
metadata: {name: six}
spec: {clusterIP: "fd00::7", clusterIPs: ["fd00::7"]}
---
kind: Service
metadata: {name: empty}
spec: {clusterIP: None}
---
kind: Service
metadata: {name: headless}
spec: {clusterIP: None}
---
kind: EndpointSlice
metadata: {name: headless-x, labels: {kubernetes.io/service-name: headless}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.1]}]
---
kind: Service
metadata: {name: alias}
spec: {type: ExternalName, externalName: example.com}
`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"web": true, "six": true, "empty": false, "headless": true, "alias": true, "none": false} {
		if got := s.Answers("default", name); got != want {
			t.Errorf("%s: %t, want %t", name, got, want)
		}
	}
	if s.Answers("other", "web") {
		t.Error("there is an answer for a Service in a namespace that does not have it")
	}
}
