// Package admissionlib holds the helpers that the built-in admission plugins of hop 4 (mutate) and hop 6 (validate) share:
// functions on an admission request or on the objects in it. It knows no plugin.
package admissionlib

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// NewPod returns the pod that a write creates, or nil.
func NewPod(a *kind.Admission) *corev1.Pod {
	if pod, ok := a.Object.(*corev1.Pod); ok && a.IsCreate() {
		return pod
	}
	return nil
}

// List reads the objects of a resource; without a namespace, those of all namespaces.
func List[T any](ctx context.Context, d kind.Server, gr schema.GroupResource, namespace string) ([]T, error) {
	seq, err := d.List(ctx, gr, namespace)
	if err != nil {
		return nil, err
	}
	var out []T
	for o := range seq {
		if x, ok := o.(T); ok {
			out = append(out, x)
		}
	}
	return out, nil
}

// IsMirrorPod reports whether a pod is the mirror pod of a static pod of its node.
func IsMirrorPod(pod *corev1.Pod) bool {
	_, is := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return is
}

// HasNewImages reports whether a container has an image that no container had before.
func HasNewImages(spec, old *corev1.PodSpec) bool {
	images := func(s *corev1.PodSpec) (out []string) {
		for _, c := range slices.Concat(s.InitContainers, s.Containers) {
			out = append(out, c.Image)
		}
		for _, c := range s.EphemeralContainers {
			out = append(out, c.Image)
		}
		return out
	}
	had := images(old)
	return slices.ContainsFunc(images(spec), func(image string) bool { return !slices.Contains(had, image) })
}

// ParseCertificateRequest decodes the PEM block of a CertificateSigningRequest.
func ParseCertificateRequest(text []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}
