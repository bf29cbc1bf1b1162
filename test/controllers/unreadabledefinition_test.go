package controllers

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/run"
)

// toys is the custom resource of this test.
var toys = schema.GroupResource{Group: "example.com", Resource: "toys"}

// definitionOfToys returns the definition of toys.
func definitionOfToys() *apiextensionsv1.CustomResourceDefinition {
	d := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: toys.String()}}
	d.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
		Group: toys.Group, Scope: apiextensionsv1.NamespaceScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: toys.Resource, Kind: "Toy"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}}},
	}
	return d
}

// encryptDefinitions writes an EncryptionConfiguration that encrypts definitions with a new key.
func encryptDefinitions(t *testing.T, file string) {
	t.Helper()
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	if err := os.WriteFile(file, fmt.Appendf(nil, `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [customresourcedefinitions.apiextensions.k8s.io]
  providers:
  - aescbc: {keys: [{name: key-%x, secret: %s}]}
  - identity: {}
`, key[:4], base64.StdEncoding.EncodeToString(key)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// usedToys returns what a quota says of how many toys there are.
func usedToys(o kind.Object) string {
	used := o.(*corev1.ResourceQuota).Status.Used["count/toys.example.com"]
	return used.String()
}

// TestControllersWithUndecryptableDefinition restarts a cluster without the key with which the definition of a custom resource is
// encrypted. The objects of that resource still exist: their namespace is not removed and has a condition with the reason, and a quota
// keeps their number.
func TestControllersWithUndecryptableDefinition(t *testing.T) {
	t.Parallel()
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "encryption.yaml")
	start := func() *proatest.Cluster {
		encryptDefinitions(t, file)
		return proatest.Start(t, proatest.Alone(), proatest.InDir(dir), func(c *run.Config) { c.Encryption = file })
	}
	create := func(c client.Client, on schema.GroupResource, o kind.Object) {
		t.Helper()
		if _, err := c.Create(t.Context(), on, o); err != nil {
			t.Fatal(err)
		}
	}
	first := start()
	c := first.Client
	create(c, gr.CustomResourceDefinitions, definitionOfToys())
	await(t, c, gr.CustomResourceDefinitions, "", toys.String(), func(o kind.Object) bool {
		d, found := o.(*apiextensionsv1.CustomResourceDefinition)
		return found && slices.ContainsFunc(d.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
		})
	})
	create(c, gr.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}})
	for _, namespace := range []string{"default", "x"} {
		toy := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Toy"}}
		toy.SetNamespace(namespace)
		toy.SetName("bear")
		create(c, toys, toy)
	}
	create(c, gr.ResourceQuotas, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "q"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/toys.example.com": resource.MustParse("5")}},
	})
	await(t, c, gr.ResourceQuotas, "default", "q", func(o kind.Object) bool { return usedToys(o) == "1" })
	first.Stop()

	c = start().Client
	const key = "/registry/apiextensions.k8s.io/customresourcedefinitions/toys.example.com"
	_, err := c.Get(t.Context(), gr.CustomResourceDefinitions, "", toys.String(), "")
	if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), key) {
		t.Fatalf("the definition is %v", err)
	}
	// The quota is counted again, because its spec changes.
	q, err := c.Get(t.Context(), gr.ResourceQuotas, "default", "q", "")
	if err != nil {
		t.Fatal(err)
	}
	q.(*corev1.ResourceQuota).Spec.Hard["configmaps"] = resource.MustParse("100")
	q.SetResourceVersion("") // the controller may write the status meanwhile
	if _, err := c.Update(t.Context(), gr.ResourceQuotas, q, ""); err != nil {
		t.Fatal(err)
	}
	await(t, c, gr.ResourceQuotas, "default", "q", func(o kind.Object) bool {
		_, counted := o.(*corev1.ResourceQuota).Status.Used["configmaps"]
		return counted
	})
	q, err = c.Get(t.Context(), gr.ResourceQuotas, "default", "q", "")
	if err != nil || usedToys(q) != "1" {
		t.Errorf("toys used: %s, %v", usedToys(q), err)
	}
	// Namespace.
	if err := c.Delete(t.Context(), gr.Namespaces, "", "x", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, c, gr.Namespaces, "", "x", func(o kind.Object) bool {
		if o == nil {
			t.Fatal("the namespace is gone, with a toy in it")
		}
		for _, c := range o.(*corev1.Namespace).Status.Conditions {
			if c.Type == corev1.NamespaceDeletionContentFailure && c.Status == corev1.ConditionTrue {
				return strings.Contains(c.Message, key)
			}
		}
		return false
	})
	time.Sleep(time.Second) // it is reconciled again
	if _, err := c.Get(t.Context(), gr.Namespaces, "", "x", ""); err != nil {
		t.Errorf("the namespace, with a toy in it: %v", err)
	}
	// Without the definition nobody knows of its objects.
	if err := c.Delete(t.Context(), gr.CustomResourceDefinitions, "", toys.String(),
		metav1.DeleteOptions{IgnoreStoreReadErrorWithClusterBreakingPotential: new(true)}); err != nil {
		t.Fatal(err)
	}
	await(t, c, gr.Namespaces, "", "x", func(o kind.Object) bool { return o == nil })
}
