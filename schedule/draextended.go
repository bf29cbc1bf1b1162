package schedule

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/gr"
)

// A DeviceClass can stand for an extended resource. A pod that asks for the resource gets devices of the class on nodes whose
// device plugins do not have it, by a claim that is made for the pod when it is bound.

// classFor is the class of devices that stands for a resource, or nil. Of several the newest does, or else the first by name.
func classFor(c Cluster, name corev1.ResourceName) *resourcev1.DeviceClass {
	class, implicit := strings.CutPrefix(string(name), resourcev1.ResourceDeviceClassPrefix)
	switch {
	case c == nil:
		return nil
	case implicit:
		if o, found := c.Get(gr.DeviceClasses, "", class); found {
			return o.(*resourcev1.DeviceClass)
		}
		return nil
	case !IsExtended(name):
		return nil
	}
	var best *resourcev1.DeviceClass
	for o := range c.List(gr.DeviceClasses, "") { // by name
		is := o.(*resourcev1.DeviceClass)
		if e := is.Spec.ExtendedResourceName; e != nil && *e == string(name) && (best == nil || best.CreationTimestamp.Before(&is.CreationTimestamp)) {
			best = is
		}
	}
	return best
}

// asksFor says that a pod asks for a resource that a class stands for.
func asksFor(pod *corev1.Pod, class *resourcev1.DeviceClass) bool {
	for name := range NewPodInfo(pod).Requests.Scalars {
		if string(name) == resourcev1.ResourceDeviceClassPrefix+class.Name || class.Spec.ExtendedResourceName != nil && *class.Spec.ExtendedResourceName == string(name) {
			return true
		}
	}
	return false
}

// extended is what a pod asks for that classes of devices stand for.
type extended struct {
	pod     *corev1.Pod
	classes map[corev1.ResourceName]string
	names   []corev1.ResourceName     // the keys, sorted
	left    *resourcev1.ResourceClaim // of an earlier try, which must go first
	made    map[string]*extendedClaim // by the names it is for
}

// extendedClaim is a claim that stands for extended resources, and which container has what of it.
type extendedClaim struct {
	claim    *resourcev1.ResourceClaim
	mappings []corev1.ContainerExtendedResourceRequest
}

// extendedOf is nil for a pod that asks for nothing of the kind.
func extendedOf(c Cluster, p *PodInfo) *extended {
	var e *extended
	for name, n := range p.Requests.Scalars {
		class := classFor(c, name)
		if n == 0 || class == nil {
			continue
		}
		if e == nil {
			e = &extended{pod: p.Pod, classes: map[corev1.ResourceName]string{}, made: map[string]*extendedClaim{}}
		}
		e.classes[name], e.names = class.Name, append(e.names, name)
	}
	if e == nil {
		return nil
	}
	slices.Sort(e.names)
	for o := range c.List(gr.ResourceClaims, p.Pod.Namespace) {
		if claim := o.(*resourcev1.ResourceClaim); extendedFor(claim) == p.Pod.UID {
			e.left = claim
		}
	}
	return e
}

// extendedFor is the UID of the pod for whose extended resources a claim was made.
func extendedFor(claim *resourcev1.ResourceClaim) types.UID {
	if by := metav1.GetControllerOf(claim); by != nil && claim.Annotations[resourcev1.ExtendedResourceClaimAnnotation] == "true" {
		return by.UID
	}
	return ""
}

// on is the claim that a pod needs on a node, or nil if the node has the resources without.
func (e *extended) on(n *NodeInfo) *extendedClaim {
	names := slices.DeleteFunc(slices.Clone(e.names), func(name corev1.ResourceName) bool { return n.Allocatable.Scalars[name] > 0 })
	if len(names) == 0 {
		return nil
	}
	key := fmt.Sprint(names)
	if e.made[key] == nil {
		e.made[key] = e.claim(names)
	}
	return e.made[key]
}

func (e *extended) claim(names []corev1.ResourceName) *extendedClaim {
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: e.pod.Namespace, GenerateName: e.pod.Name + "-extended-resources-",
		Annotations: map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Pod", Name: e.pod.Name, UID: e.pod.UID, Controller: new(true),
		}},
	}}
	out := &extendedClaim{claim: claim}
	for _, name := range names {
		requests, mappings := devicesFor(e.pod, name, e.classes[name])
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, requests...)
		out.mappings = append(out.mappings, mappings...)
	}
	slices.SortFunc(claim.Spec.Devices.Requests, func(a, b resourcev1.DeviceRequest) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// devicesFor are the requests for one resource, and which container has what of them. Each container that stays has its own. An
// init container that ends uses what those after it will have; what it needs besides, it shares with the others of its kind.
func devicesFor(pod *corev1.Pod, name corev1.ResourceName, class string) (requests []resourcev1.DeviceRequest, mappings []corev1.ContainerExtendedResourceRequest) {
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

// requestName has the place of a container in its pod, and the place of a resource among the sorted requests of the container.
func requestName(c *corev1.Container, i int, name corev1.ResourceName) string {
	before := 0
	for other := range c.Resources.Requests {
		if other < name {
			before++
		}
	}
	return fmt.Sprintf("container-%d-request-%d", i, before)
}

// makeExtended stores the claim of a pod with its devices, and tells the pod what it has.
func (w *devicesOf) makeExtended(ctx context.Context, e *extendedClaim, a *resourcev1.AllocationResult) (*resourcev1.ResourceClaim, error) {
	o, err := w.deps.Client.Create(ctx, gr.ResourceClaims, e.claim.DeepCopy())
	if err != nil {
		return nil, fmt.Errorf("create claim for extended resources %s/: %w", e.claim.Namespace, err)
	}
	w.made = o.(*resourcev1.ResourceClaim)
	claim, err := w.write(ctx, w.made, a)
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
		pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{RequestMappings: e.mappings, ResourceClaimName: claim.Name}
		_, err = w.deps.Client.Update(ctx, gr.Pods, pod, "status")
		if err == nil {
			return claim, nil
		}
		if !apierrors.IsConflict(err) || try == 4 {
			return nil, fmt.Errorf("update pod %s/%s ExtendedResourceClaimStatus: %w", pod.Namespace, pod.Name, err)
		}
	}
}

// dropClaim deletes a claim for extended resources, and gives its devices back.
func (d *dynamicResources) dropClaim(ctx context.Context, claim *resourcev1.ResourceClaim) error {
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
		err = d.deps.Client.Delete(ctx, gr.ResourceClaims, claim.Namespace, claim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &claim.UID}})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
}
