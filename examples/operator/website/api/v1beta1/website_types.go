// Package v1beta1 has the older version of Website, which clients may still use.
// +kubebuilder:object:generate=true
// +groupName=example.com
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/conversion"

	v1 "example.com/operator/website/api/v1"
)

// GroupVersion is the group of Website with this version.
var GroupVersion = schema.GroupVersion{Group: "example.com", Version: "v1beta1"}

// WebsiteSpec is the desired state of a Website.
type WebsiteSpec struct {
	// DNSName is called host in v1.
	// +kubebuilder:validation:MinLength=1
	DNSName string `json:"dnsName"`
	// Image serves the website.
	Image string `json:"image,omitempty"`
	// Servers are called replicas in v1.
	// +kubebuilder:validation:Minimum=0
	Servers *int32 `json:"servers,omitempty"`
}

// Website is a host name with servers behind it.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
type Website struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   WebsiteSpec      `json:"spec,omitempty"`
	Status v1.WebsiteStatus `json:"status,omitempty"`
}

// ConvertTo converts this Website to v1.
func (w *Website) ConvertTo(to conversion.Hub) error {
	hub := to.(*v1.Website)
	hub.ObjectMeta, hub.Status = w.ObjectMeta, w.Status
	hub.Spec = v1.WebsiteSpec{Host: w.Spec.DNSName, Image: w.Spec.Image, Replicas: w.Spec.Servers}
	return nil
}

// ConvertFrom converts a Website of v1 to this version.
func (w *Website) ConvertFrom(from conversion.Hub) error {
	hub := from.(*v1.Website)
	w.ObjectMeta, w.Status = hub.ObjectMeta, hub.Status
	w.Spec = WebsiteSpec{DNSName: hub.Spec.Host, Image: hub.Spec.Image, Servers: hub.Spec.Replicas}
	return nil
}

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
