package devices

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/lib/gr"
	"proa.dev/schedule/framework"
)

// A DeviceClass can provide an extended resource. On nodes whose device plugins do not have the resource, a Pod that
// requests it gets devices of the class, through a claim that is created when the Pod is bound.

// extendedRequests has the extended resources that a Pod requests and DeviceClasses provide.
type extendedRequests struct {
	pod        *corev1.Pod
	classes    map[corev1.ResourceName]string
	names      []corev1.ResourceName     // the keys, sorted
	staleClaim *resourcev1.ResourceClaim // of an earlier attempt; it must be deleted first
	claims     map[string]*extendedClaim // by the names of the resources
}

// extendedClaim is a claim for extended resources, with the mapping of its requests to containers.
type extendedClaim struct {
	claim    *resourcev1.ResourceClaim
	mappings []corev1.ContainerExtendedResourceRequest
}

// extendedRequestsOf returns the extended resources of a Pod that DeviceClasses provide; nil if there are none.
func extendedRequestsOf(c framework.Cluster, p *framework.PodInfo) *extendedRequests {
	var e *extendedRequests
	for name, n := range p.Requests.Scalars {
		class := framework.DeviceClassFor(c, name)
		if n == 0 || class == nil {
			continue
		}
		if e == nil {
			e = &extendedRequests{pod: p.Pod, classes: map[corev1.ResourceName]string{}, claims: map[string]*extendedClaim{}}
		}
		e.classes[name], e.names = class.Name, append(e.names, name)
	}
	if e == nil {
		return nil
	}
	slices.Sort(e.names)
	for o := range c.List(gr.ResourceClaims, p.Pod.Namespace) {
		if claim := o.(*resourcev1.ResourceClaim); podOfExtendedClaim(claim) == p.Pod.UID {
			e.staleClaim = claim
		}
	}
	return e
}

// podOfExtendedClaim returns the UID of the Pod for whose extended resources a claim was created, or "".
func podOfExtendedClaim(claim *resourcev1.ResourceClaim) types.UID {
	if by := metav1.GetControllerOf(claim); by != nil && claim.Annotations[resourcev1.ExtendedResourceClaimAnnotation] == "true" {
		return by.UID
	}
	return ""
}

// claimFor returns the claim that the Pod needs on a node, or nil if device plugins of the node provide the resources.
func (e *extendedRequests) claimFor(n *framework.NodeInfo) *extendedClaim {
	names := slices.DeleteFunc(slices.Clone(e.names), func(name corev1.ResourceName) bool { return n.Allocatable.Scalars[name] > 0 })
	if len(names) == 0 {
		return nil
	}
	key := fmt.Sprint(names)
	if e.claims[key] == nil {
		e.claims[key] = e.buildClaim(names)
	}
	return e.claims[key]
}

func (e *extendedRequests) buildClaim(names []corev1.ResourceName) *extendedClaim {
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: e.pod.Namespace, GenerateName: e.pod.Name + "-extended-resources-",
		Annotations: map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Pod", Name: e.pod.Name, UID: e.pod.UID, Controller: new(true),
		}},
	}}
	out := &extendedClaim{claim: claim}
	for _, name := range names {
		requests, mappings := deviceRequests(e.pod, name, e.classes[name])
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, requests...)
		out.mappings = append(out.mappings, mappings...)
	}
	slices.SortFunc(claim.Spec.Devices.Requests, func(a, b resourcev1.DeviceRequest) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// deviceRequests returns the device requests for one resource, and their mapping to containers. Each container and
// sidecar has a request of its own. An init container uses the devices of the containers after it; what it needs in
// addition is one request that all init containers share.
func deviceRequests(pod *corev1.Pod, name corev1.ResourceName, class string) (requests []resourcev1.DeviceRequest,
	mappings []corev1.ContainerExtendedResourceRequest) {
	containers := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	passes := func(i int) bool {
		policy := containers[i].RestartPolicy
		return i < len(pod.Spec.InitContainers) && (policy == nil || *policy != corev1.ContainerRestartPolicyAlways)
	}
	has := func(i int, request string) corev1.ContainerExtendedResourceRequest {
		return corev1.ContainerExtendedResourceRequest{ContainerName: containers[i].Name, ResourceName: string(name), RequestName: request}
	}
	counts := make([]int64, len(containers)) // of those that stay
	for i := range containers {
		if n := wholeUnits(&containers[i], name); n > 0 && !passes(i) {
			counts[i] = n
			requests = append(requests, deviceRequest(&containers[i], i, name, class, n))
			mappings = append(mappings, has(i, requests[len(requests)-1].Name))
		}
	}
	var most *resourcev1.DeviceRequest
	var short []int // mappings that are about the shared request
	for i := range containers {
		need := wholeUnits(&containers[i], name)
		if need == 0 || !passes(i) {
			continue
		}
		for j := i; j < len(containers) && need > 0; j++ {
			if counts[j] > 0 {
				mappings = append(mappings, has(i, requestName(&containers[j], j, name)))
				need -= counts[j]
			}
		}
		if need > 0 {
			short = append(short, len(mappings))
			mappings = append(mappings, has(i, ""))
			if most == nil || most.Exactly.Count < need {
				most = new(deviceRequest(&containers[i], i, name, class, need))
			}
		}
	}
	for _, i := range short {
		mappings[i].RequestName = most.Name
	}
	if most != nil {
		requests = append(requests, *most)
	}
	return requests, mappings
}

func wholeUnits(c *corev1.Container, name corev1.ResourceName) int64 {
	q := c.Resources.Requests[name]
	n, _ := q.AsInt64()
	return n
}

func deviceRequest(c *corev1.Container, i int, name corev1.ResourceName, class string, count int64) resourcev1.DeviceRequest {
	return resourcev1.DeviceRequest{Name: requestName(c, i, name), Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count,
	}}
}

// requestName returns the name of a request: it has the index of the container in the Pod, and the index of the
// resource in its sorted requests.
func requestName(c *corev1.Container, i int, name corev1.ResourceName) string {
	before := 0
	for other := range c.Resources.Requests {
		if other < name {
			before++
		}
	}
	return fmt.Sprintf("container-%d-request-%d", i, before)
}

// createExtendedClaim creates the claim for extended resources with its allocation, and writes the mapping to the
// status of the Pod.
func (w *podDevices) createExtendedClaim(ctx context.Context, e *extendedClaim, a *resourcev1.AllocationResult) (*resourcev1.ResourceClaim,
	error) {
	o, err := w.deps.Client.Create(ctx, gr.ResourceClaims, e.claim.DeepCopy())
	if err != nil {
		return nil, fmt.Errorf("create claim for extended resources %s/: %w", e.claim.Namespace, err)
	}
	w.createdClaim = o.(*resourcev1.ResourceClaim)
	claim, err := w.reserveClaim(ctx, w.createdClaim, a)
	if err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		o, err := w.deps.Client.Get(ctx, gr.Pods, w.pod.Namespace, w.pod.Name, "")
		if err != nil {
			return nil, err
		}
		pod := o.(*corev1.Pod)
		if pod.UID != w.pod.UID {
			return nil, fmt.Errorf("pod %s/%s is another by now", pod.Namespace, pod.Name)
		}
		pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{RequestMappings: e.mappings,
			ResourceClaimName: claim.Name}
		_, err = w.deps.Client.Update(ctx, gr.Pods, pod, "status")
		if err == nil {
			return claim, nil
		}
		if !apierrors.IsConflict(err) || try == 4 {
			return nil, fmt.Errorf("update pod %s/%s ExtendedResourceClaimStatus: %w", pod.Namespace, pod.Name, err)
		}
	}
}

// deleteClaim deletes a claim for extended resources after removing its finalizer, which deallocates its devices.
func (d *dynamicResources) deleteClaim(ctx context.Context, claim *resourcev1.ResourceClaim) error {
	for try := 0; ; try++ {
		o, err := d.deps.Client.Get(ctx, gr.ResourceClaims, claim.Namespace, claim.Name, "")
		if apierrors.IsNotFound(err) || err == nil && o.GetUID() != claim.UID {
			return nil
		}
		if err != nil {
			return err
		}
		is := o.(*resourcev1.ResourceClaim)
		if at := slices.Index(is.Finalizers, resourcev1.Finalizer); at >= 0 {
			is.Finalizers = slices.Delete(is.Finalizers, at, at+1)
			if _, err = d.deps.Client.Update(ctx, gr.ResourceClaims, is, ""); apierrors.IsConflict(err) && try < 4 {
				continue
			} else if err != nil {
				return err
			}
		}
		err = d.deps.Client.Delete(ctx, gr.ResourceClaims, claim.Namespace, claim.Name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &claim.UID}})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
}
