package quotausage

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// serviceUsage adds the usage of a service. Node ports count as requested: they are allocated later.
func serviceUsage(used corev1.ResourceList, s *corev1.Service) {
	used[corev1.ResourceServices] = number(1)
	balancers, ports := 0, 0
	switch s.Spec.Type {
	case corev1.ServiceTypeNodePort:
		ports = len(s.Spec.Ports)
	case corev1.ServiceTypeLoadBalancer:
		balancers, ports = 1, len(s.Spec.Ports)
		if allocate := s.Spec.AllocateLoadBalancerNodePorts; allocate != nil && !*allocate {
			ports = 0
			for _, p := range s.Spec.Ports {
				if p.NodePort != 0 {
					ports++
				}
			}
		}
	}
	used[corev1.ResourceServicesLoadBalancers], used[corev1.ResourceServicesNodePorts] = number(balancers), number(ports)
}

func serviceName(name corev1.ResourceName) bool {
	return name == corev1.ResourceServices || name == corev1.ResourceServicesLoadBalancers || name == corev1.ResourceServicesNodePorts
}

// ofClass follows the name of a storage class in the names of resources that bound the claims of that class.
const ofClass = ".storageclass.storage.k8s.io/"

// volumeClaimUsage adds the usage of a PersistentVolumeClaim, in total and for its storage class.
func volumeClaimUsage(used corev1.ResourceList, claim *corev1.PersistentVolumeClaim) {
	class := claim.Annotations[corev1.BetaStorageClassAnnotation]
	if _, said := claim.Annotations[corev1.BetaStorageClassAnnotation]; !said && claim.Spec.StorageClassName != nil {
		class = *claim.Spec.StorageClassName
	}
	add := func(name corev1.ResourceName, q resource.Quantity) {
		used[name] = q
		if class != "" {
			used[corev1.ResourceName(class+ofClass)+name] = q
		}
	}
	add(corev1.ResourcePersistentVolumeClaims, number(1))
	size, asked := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if !asked {
		return
	}
	// An expansion that has begun counts, although its request may have been cancelled.
	if begun, ok := claim.Status.AllocatedResources[corev1.ResourceStorage]; ok && begun.Cmp(size) > 0 {
		size = begun
	}
	size = size.DeepCopy()
	size.RoundUp(0) // a quota counts whole bytes
	add(corev1.ResourceRequestsStorage, size)
}

func volumeClaimName(name corev1.ResourceName) bool {
	for _, known := range []corev1.ResourceName{corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage} {
		if name == known || strings.HasSuffix(string(name), ofClass+string(known)) {
			return true
		}
	}
	return false
}

// attributeClasses returns the VolumeAttributesClasses that a claim has, wants, or is changing to.
func attributeClasses(claim *corev1.PersistentVolumeClaim) (names []string) {
	add := func(name *string) {
		if name != nil && *name != "" && !slices.Contains(names, *name) {
			names = append(names, *name)
		}
	}
	add(claim.Spec.VolumeAttributesClassName)
	add(claim.Status.CurrentVolumeAttributesClassName)
	if m := claim.Status.ModifyVolumeStatus; m != nil {
		add(&m.TargetVolumeAttributesClassName)
	}
	slices.Sort(names)
	return names
}

// hasClaimChanged reports whether size or classes in the status of a claim have changed.
func hasClaimChanged(claim, old *corev1.PersistentVolumeClaim) bool {
	return claim.Status.AllocatedResources.Storage().Cmp(*old.Status.AllocatedResources.Storage()) != 0 ||
		!slices.Equal(attributeClasses(claim), attributeClasses(old))
}
