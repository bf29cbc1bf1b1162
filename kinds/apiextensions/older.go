package apiextensions

import (
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
)

// definitionFromV1beta1 converts a definition as kube-apiserver stores it: v1beta1 has the properties that all
// versions share once, and v1 has them in each version.
func definitionFromV1beta1(old *apiextensionsv1beta1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error) {
	apiextensionsv1beta1.SetObjectDefaults_CustomResourceDefinition(old)
	var common apiextensions.CustomResourceDefinition
	if err := apiextensionsv1beta1.Convert_v1beta1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(old, &common,
		nil); err != nil {
		return nil, err
	}
	var out apiextensionsv1.CustomResourceDefinition
	err := apiextensionsv1.Convert_apiextensions_CustomResourceDefinition_To_v1_CustomResourceDefinition(&common, &out, nil)
	return &out, err
}
