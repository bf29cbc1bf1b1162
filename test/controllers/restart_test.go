package controllers

import (
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"proa.dev/control"
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/run"
)

// TestControllersOfServerWithDefinitions checks that no controller of a server that starts with definitions has a trigger on a custom
// resource: the view would end with the definition, and the controller would wait for it.
func TestControllersOfServerWithDefinitions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var controllers []control.Controller
	start := func() *proatest.Cluster {
		return proatest.Start(t, proatest.Alone(), proatest.InDir(dir), func(c *run.Config) {
			c.FilterControllers = func(all []control.Controller) []control.Controller { controllers = all; return all }
		})
	}
	cluster := start()
	d := &apiextensionsv1.CustomResourceDefinition{}
	d.Name = "toys.example.com"
	d.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "toys", Kind: "Toy"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: "v1", Served: true, Storage: true,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
		}},
	}
	if _, err := cluster.Client.Create(t.Context(), gr.CustomResourceDefinitions, d); err != nil {
		t.Fatal(err)
	}
	served := func() (found bool) {
		for _, def := range cluster.Server.Resources() {
			found = found || def.Plural == "toys"
		}
		return found
	}
	for deadline := time.Now().Add(time.Minute); !served(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the resource is not served")
		}
	}
	cluster.Stop()
	cluster = start()
	defer cluster.Stop()
	if !served() {
		t.Fatal("the resource is not served by the next server")
	}
	for _, ctl := range controllers {
		for _, trigger := range ctl.Triggers {
			if trigger.On.Group == "example.com" {
				t.Errorf("%s watches %s from its start", ctl.Name, trigger.On)
			}
		}
	}
}
