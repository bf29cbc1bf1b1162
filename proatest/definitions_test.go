package proatest_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"proa.dev/proatest"
)

// TestDefinitions creates objects of definitions from a file and from an object at once when the cluster has started.
func TestDefinitions(t *testing.T) {
	dir := t.TempDir()
	crds := filepath.Join(dir, "crds")
	if err := os.Mkdir(crds, 0o700); err != nil {
		t.Fatal(err)
	}
	text := "kind: Other\n---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition" + cronTabDefinition
	if err := os.WriteFile(filepath.Join(crds, "crontabs.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	limits := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal([]byte(limitDefinition), limits); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		c := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir), proatest.Definitions(crds),
			proatest.DefinitionObjects(limits))
		defer c.Stop()
		for on, text := range map[schema.GroupResource]string{
			{Group: "stable.example.com", Resource: "crontabs"}: "apiVersion: stable.example.com/v1\nkind: CronTab\nmetadata: {namespace: default, name: a}",
			{Group: "example.com", Resource: "limits"}:          "apiVersion: example.com/v1\nkind: Limit\nmetadata: {namespace: default, name: a}",
		} {
			if err := create(t, c, on, &unstructured.Unstructured{}, text); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestLaunch runs a cluster without a testing.TB, and one whose start fails because its definition is invalid.
func TestLaunch(t *testing.T) {
	c, err := proatest.Launch(t.Context(), slog.New(slog.NewTextHandler(t.Output(), nil)), proatest.Memory())
	if err != nil {
		t.Fatal(err)
	}
	if c.Config == nil || c.Client == nil {
		t.Errorf("the cluster is %+v, want ways into it", c)
	}
	c.Stop()
	c.Stop() // again does no harm
	if _, err := os.Stat(c.Dir); !os.IsNotExist(err) {
		t.Errorf("the folder of the cluster is left: %v", err)
	}
	wrong := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "wrong"}}
	if c, err := proatest.Launch(t.Context(), slog.New(slog.NewTextHandler(t.Output(), nil)), proatest.Memory(), proatest.Alone(),
		proatest.DefinitionObjects(wrong)); err == nil {
		c.Stop()
		t.Error("the cluster started with a definition that is invalid")
	}
}
