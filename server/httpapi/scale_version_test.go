package httpapi_test

import (
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/proatest"
)

// TestScaleOfAnotherVersion checks that a scale that only a version has in which objects are not stored is found by controllers,
// which do not name versions.
func TestScaleOfAnotherVersion(t *testing.T) {
	c := proatest.Start(t, proatest.Memory())
	w := newHTTPClient(t, c)
	s := &customScript{w: w, file: "scale"}
	s.send("", "POST "+definitionsPath,
		`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"fleets.attack.example.com"},"spec":{
"group":"attack.example.com","scope":"Namespaced","names":{"plural":"fleets","kind":"Fleet"},"versions":[
{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"replicas":{"type":"integer"}}}}}}},
{"name":"v2","served":true,"storage":false,"subresources":{"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}},
"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"replicas":{"type":"integer"}}},"status":{"type":"object","properties":{"replicas":{"type":"integer"}}}}}}}]}}`, "201")
	s.send("", "GET "+definitionsPath+"/fleets.attack.example.com", "", "established")
	w.must(201, "POST", "/apis/attack.example.com/v1/namespaces/default/fleets", `{"apiVersion":"attack.example.com/v1","kind":"Fleet","metadata":{"name":"f"},"spec":{"replicas":3}}`)
	fleets := schema.GroupResource{Group: "attack.example.com", Resource: "fleets"}
	o, err := c.Client.Get(t.Context(), fleets, "default", "f", "scale")
	if err != nil {
		t.Fatal(err)
	}
	scale := o.(*autoscalingv1.Scale)
	if scale.Spec.Replicas != 3 {
		t.Errorf("the scale is %+v", scale)
	}
	scale.Spec.Replicas = 5
	if _, err := c.Client.Update(t.Context(), fleets, scale, "scale"); err != nil {
		t.Fatal(err)
	}
	if got := w.must(200, "GET", "/apis/attack.example.com/v1/namespaces/default/fleets/f", ""); show(got, "spec.replicas") != "5" {
		t.Errorf("the object is %v", got)
	}
	if _, err := c.Client.Get(t.Context(), fleets, "default", "f", "nothing"); err == nil {
		t.Error("a subresource that no version has is found")
	}
}
