package apiextensions

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestOutline checks that an outline lacks the large parts and nothing else, and that the definition is not changed.
func TestOutline(t *testing.T) {
	c := &crd{
		ObjectMeta: metav1.ObjectMeta{
			Name: "things.example.com", Finalizers: []string{"a.b/c"}, OwnerReferences: []metav1.OwnerReference{{Name: "owner"}},
			Annotations:   map[string]string{corev1.LastAppliedConfigAnnotation: "{}", apiextensionsv1.KubeAPIApprovedAnnotation: "yes"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Conversion: &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
				AdditionalPrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{{Name: "Age"}},
			}},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{StoredVersions: []string{"v1"}},
	}
	before := c.DeepCopy()
	got := outline(c)
	if !equality.Semantic.DeepEqual(c, before) {
		t.Errorf("the definition was changed: %v", c)
	}
	want := c.DeepCopy()
	want.ManagedFields, want.Spec.Versions[0].Schema = nil, nil
	delete(want.Annotations, corev1.LastAppliedConfigAnnotation)
	if !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("the outline is %v\nwant %v", got, want)
	}
}
