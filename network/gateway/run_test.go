package gateway

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestDefinitions checks which definitions are enough to serve Gateways.
func TestDefinitions(t *testing.T) {
	definition := func(version string, served, established bool) *apiextensionsv1.CustomResourceDefinition {
		c := &apiextensionsv1.CustomResourceDefinition{}
		c.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1alpha2", Served: true},
			{Name: version, Served: served}}
		c.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established,
			Status: apiextensionsv1.ConditionFalse}}
		if established {
			c.Status.Conditions[0].Status = apiextensionsv1.ConditionTrue
		}
		return c
	}
	going := definition("v1", true, true)
	going.DeletionTimestamp = new(metav1.Now())
	for _, c := range []struct {
		what string
		name string
		of   *apiextensionsv1.CustomResourceDefinition
		want bool
	}{
		{"served", gateways, definition("v1", true, true), true},
		{"not established", gateways, definition("v1", true, false), false},
		{"not served", gateways, definition("v1", false, true), false},
		{"another version", gateways, definition("v1beta1", true, true), false},
		{"grants of older releases", grants, definition("v1beta1", true, true), true},
		{"about to go", gateways, going, false},
	} {
		if _, got := servedVersion(c.of, c.name); (got != "") != c.want {
			t.Errorf("%s: %q", c.what, got)
		}
	}
	defined := map[string]types.UID{classes: "", gateways: "", httpRoutes: ""}
	if hasRequired(defined) {
		t.Error("complete without ReferenceGrants")
	}
	if defined[grants] = ""; !hasRequired(defined) {
		t.Error("not complete with all that is needed")
	}
	if !isGatewayDefinition("gateways.gateway.networking.k8s.io") || isGatewayDefinition("gateways.networking.istio.io") {
		t.Error("definitions of other projects are taken for those of the Gateway API, or the other way round")
	}
}
