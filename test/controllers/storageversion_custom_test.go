package controllers

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/run"
)

// TestStorageVersionOfCustomObjects migrates custom objects to another storage version: each is written again, and the old
// version is removed from the stored versions of the definition.
func TestStorageVersionOfCustomObjects(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cluster := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir), func(c *run.Config) {
			c.FilterControllers = func(all []control.Controller) []control.Controller {
				return slices.DeleteFunc(all, func(l control.Controller) bool {
					return !slices.Contains([]string{"storage-version-migrator-controller", "crd-status-controller"}, l.Name)
				})
			}
		})
		defer cluster.Stop()
		c, ctx := cluster.Client, t.Context()
		done := func(o kind.Object, err error) kind.Object {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			return o
		}
		version := func(name string, storage bool) apiextensionsv1.CustomResourceDefinitionVersion {
			props := &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
			return apiextensionsv1.CustomResourceDefinitionVersion{
				Name: name, Served: true, Storage: storage, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: props},
			}
		}
		d := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "toys.example.com"}}
		d.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "toys", Kind: "Toy"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1", true)},
		}
		done(c.Create(ctx, gr.CustomResourceDefinitions, d))
		toys := schema.GroupResource{Group: "example.com", Resource: "toys"}
		bear := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Toy", "metadata": map[string]any{"namespace": "default", "name": "bear"},
			"color": "brown",
		}}
		was := done(c.Create(ctx, toys, bear))
		d = done(c.Get(ctx, gr.CustomResourceDefinitions, "", "toys.example.com", "")).(*apiextensionsv1.CustomResourceDefinition)
		d.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{version("v1", false), version("v2", true)}
		done(c.Update(ctx, gr.CustomResourceDefinitions, d, ""))

		migrate := func(name string) {
			t.Helper()
			m := &storagemigrationv1.StorageVersionMigration{ObjectMeta: metav1.ObjectMeta{Name: name}}
			m.Spec.Resource = metav1.GroupResource{Group: "example.com", Resource: "toys"}
			done(c.Create(ctx, gr.StorageVersionMigrations, m))
			time.Sleep(10 * time.Second)
			m = done(c.Get(ctx, gr.StorageVersionMigrations, "", name, "")).(*storagemigrationv1.StorageVersionMigration)
			if !meta.IsStatusConditionTrue(m.Status.Conditions, string(storagemigrationv1.MigrationSucceeded)) {
				t.Errorf("%s: %+v", name, m.Status.Conditions)
			}
		}
		migrate("first")
		is := done(c.Get(ctx, toys, "default", "bear", ""))
		if is.GetResourceVersion() == was.GetResourceVersion() {
			t.Error("the object is not written again")
		}
		if u := is.(*unstructured.Unstructured); u.GetAPIVersion() != "example.com/v2" || u.Object["color"] != "brown" ||
			u.GetUID() != was.GetUID() {
			t.Errorf("the object is %v", u.Object)
		}
		d = done(c.Get(ctx, gr.CustomResourceDefinitions, "", "toys.example.com", "")).(*apiextensionsv1.CustomResourceDefinition)
		if !slices.Equal(d.Status.StoredVersions, []string{"v2"}) {
			t.Errorf("stored versions: %v", d.Status.StoredVersions)
		}
	})
}
