// Package v1 has the version of Website that is stored.
// +kubebuilder:object:generate=true
// +groupName=example.com
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group of Website with this version.
var GroupVersion = schema.GroupVersion{Group: "example.com", Version: "v1"}

// WebsiteSpec is the desired state of a Website.
type WebsiteSpec struct {
	// Host is the name by which the website is published. It cannot be changed.
	// +kubebuilder:validation:MinLength=1
	Host string `json:"host"`
	// Image serves the website.
	Image string `json:"image,omitempty"`
	// Replicas is the number of servers.
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`
}

// WebsiteStatus is the observed state of a Website.
type WebsiteStatus struct {
	// Deployed is the number of replicas in the spec of the Deployment.
	Deployed int32 `json:"deployed,omitempty"`
}

// Website is a host name with servers behind it.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Host",type=string,JSONPath=`.spec.host`
type Website struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   WebsiteSpec   `json:"spec,omitempty"`
	Status WebsiteStatus `json:"status,omitempty"`
}

// Hub marks the version that all others are converted to and from.
func (*Website) Hub() {}

// WebsiteList is a list of Websites.
// +kubebuilder:object:root=true
type WebsiteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Website `json:"items"`
}

// AddToScheme adds this version to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Website{}, &WebsiteList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
