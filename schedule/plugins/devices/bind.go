package devices

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/schedule/framework"
)

// pendingAllocations has the allocations that are decided but not yet visible in the view, by the UID of their claim.
type pendingAllocations struct {
	mu     sync.Mutex // guards claims
	claims map[types.UID]pendingAllocation
}

// pendingAllocation is an allocation that is not yet visible. The claim for extended resources does not exist yet; its
// allocation is stored under the UID of the Pod.
type pendingAllocation struct {
	*resourcev1.AllocationResult
	pod *corev1.Pod
}

func newPendingAllocations() *pendingAllocations {
	return &pendingAllocations{claims: map[types.UID]pendingAllocation{}}
}

func (f *pendingAllocations) set(uid types.UID, a pendingAllocation) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.claims[uid] = a
}

func (f *pendingAllocations) remove(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.claims, uid)
}

// removeObsolete removes the allocations whose claim does not exist any more or whose Pod does not need them.
func (f *pendingAllocations) removeObsolete(there func(types.UID) bool, needed func(*corev1.Pod) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.claims, func(uid types.UID, a pendingAllocation) bool {
		if a.pod != nil {
			return !needed(a.pod)
		}
		return !there(uid)
	})
}

func (f *pendingAllocations) has(uid types.UID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, is := f.claims[uid]
	return is
}

func (f *pendingAllocations) each(do func(*resourcev1.AllocationResult)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.claims {
		do(a.AllocationResult)
	}
}

// reserve reserves the devices that were allocated for the node.
func (w *podDevices) reserve(node string) *framework.Rejection {
	found, is := w.allocations[node]
	if !is && len(w.unallocated) == 0 {
		return nil
	}
	if !is {
		return framework.Failed(errors.New("claim allocation not found for node"))
	}
	w.reserved = found
	for i, c := range w.unallocated {
		w.pending.set(c.UID, pendingAllocation{AllocationResult: &found.results[i]})
	}
	if found.extended != nil {
		w.pending.set(w.pod.UID, pendingAllocation{&found.results[len(w.unallocated)], w.pod})
	}
	return nil
}

// unreserve undoes reserve. Allocations that are written already are kept, and used by the next attempt; but the claims
// are no longer reserved for the Pod, and the claim for extended resources is deleted.
func (w *podDevices) unreserve() {
	w.removeReservations()
	for _, c := range w.unallocated {
		w.pending.remove(c.UID)
	}
	w.reserved = nodeAllocation{}
	if w.extended == nil {
		return
	}
	made := w.createdClaim
	if w.createdClaim = nil; made == nil {
		w.pending.remove(w.pod.UID)
		return
	}
	w.deps.Go(func(ctx context.Context) {
		defer w.pending.remove(w.pod.UID)
		if err := w.deleteClaim(ctx, made); err != nil {
			w.deps.Log.WarnContext(ctx, "delete a claim for extended resources", "namespace", made.Namespace, "name", made.Name, "err", err)
		}
	})
}

// preBind writes the allocations, reserves the claims for the Pod, and waits until the devices are ready.
func (w *podDevices) preBind(ctx context.Context, node string) error {
	var claims []*resourcev1.ResourceClaim
	for i, c := range w.unallocated {
		wrote, err := w.reserveClaim(ctx, c, &w.reserved.results[i])
		if err != nil {
			return err
		}
		claims = append(claims, wrote)
		w.reservedClaims = append(w.reservedClaims, wrote)
	}
	for _, c := range w.allocated {
		wrote := c.ResourceClaim
		if !isReserved(wrote, w.pod) {
			var err error
			if wrote, err = w.reserveClaim(ctx, wrote, nil); err != nil {
				return err
			}
		}
		claims = append(claims, wrote)
		w.reservedClaims = append(w.reservedClaims, wrote)
	}
	if e := w.reserved.extended; e != nil {
		wrote, err := w.createExtendedClaim(ctx, e, &w.reserved.results[len(w.unallocated)])
		if err != nil {
			return err
		}
		claims = append(claims, wrote)
	}
	return w.awaitDevices(ctx, node, claims)
}

func isReserved(claim *resourcev1.ResourceClaim, pod *corev1.Pod) bool {
	return slices.ContainsFunc(claim.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == pod.UID })
}

// reserveClaim adds the Pod, and an allocation unless that is nil, to the status of a claim.
func (w *podDevices) reserveClaim(ctx context.Context, claim *resourcev1.ResourceClaim,
	a *resourcev1.AllocationResult) (*resourcev1.ResourceClaim, error) {
	return w.retryOnConflict(ctx, claim, func(now *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error) {
		return w.reserveClaimOnce(ctx, now.DeepCopy(), a)
	})
}

// retryOnConflict calls change with a claim, and after a conflict again with its current state, up to five times.
func (w *podDevices) retryOnConflict(ctx context.Context, claim *resourcev1.ResourceClaim,
	change func(now *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error)) (*resourcev1.ResourceClaim, error) {
	var err error
	for try := 0; try < 5; try++ {
		if try > 0 {
			o, err := w.deps.Client.Get(ctx, gr.ResourceClaims, claim.Namespace, claim.Name, "")
			if err != nil {
				return nil, fmt.Errorf("get updated claim %s/%s after conflict: %w", claim.Namespace, claim.Name, err)
			}
			claim = o.(*resourcev1.ResourceClaim)
		}
		var wrote *resourcev1.ResourceClaim
		if wrote, err = change(claim); err == nil || !apierrors.IsConflict(err) {
			return wrote, err
		}
	}
	return nil, err
}

func (w *podDevices) reserveClaimOnce(ctx context.Context, claim *resourcev1.ResourceClaim,
	a *resourcev1.AllocationResult) (*resourcev1.ResourceClaim, error) {
	name := claim.Namespace + "/" + claim.Name
	if claim.DeletionTimestamp != nil {
		return nil, fmt.Errorf("claim %s got deleted in the meantime", name)
	}
	what := "add reservation to claim "
	if a != nil {
		what = "add allocation and reservation to claim "
		if claim.Status.Allocation != nil {
			return nil, fmt.Errorf("claim %s got allocated elsewhere in the meantime", name)
		}
		// The finalizer keeps the claim until its devices are deallocated.
		if !slices.Contains(claim.Finalizers, resourcev1.Finalizer) {
			claim.Finalizers = append(claim.Finalizers, resourcev1.Finalizer)
			var o kind.Object
			var err error
			if o, err = w.deps.Client.Update(ctx, gr.ResourceClaims, claim, ""); err != nil {
				return nil, fmt.Errorf("add finalizer to claim %s: %w", name, err)
			}
			claim = o.(*resourcev1.ResourceClaim)
		}
		claim.Status.Allocation = a.DeepCopy()
	}
	if claim.Status.Allocation == nil {
		return nil, fmt.Errorf("claim %s got deallocated elsewhere in the meantime", name)
	}
	if claim.Status.Allocation.AllocationTimestamp == nil {
		claim.Status.Allocation.AllocationTimestamp = &metav1.Time{Time: metav1.Now().Time}
	}
	if !isReserved(claim, w.pod) {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor,
			resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: w.pod.Name, UID: w.pod.UID})
	}
	o, err := w.deps.Client.Update(ctx, gr.ResourceClaims, claim, "status")
	if err != nil {
		return nil, fmt.Errorf("%s%s: %w", what, name, err)
	}
	return o.(*resourcev1.ResourceClaim), nil
}

// removeReservations removes the Pod from the claims that are reserved for it, and waits for that, because the next
// attempt reserves them again. Claims that cannot be written stay reserved until then.
func (w *podDevices) removeReservations() {
	wrote := w.reservedClaims
	if w.reservedClaims = nil; len(wrote) == 0 {
		return
	}
	done := make(chan struct{})
	w.deps.Go(func(ctx context.Context) {
		defer close(done)
		for _, claim := range wrote {
			if err := w.removeReservation(ctx, claim); err != nil && !apierrors.IsNotFound(err) {
				w.deps.Log.WarnContext(ctx, "take a pod out of its claim", "namespace", claim.Namespace, "name", claim.Name, "err", err)
			}
		}
	})
	<-done
}

func (w *podDevices) removeReservation(ctx context.Context, claim *resourcev1.ResourceClaim) error {
	uid := claim.UID
	_, err := w.retryOnConflict(ctx, claim, func(now *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error) {
		if now.UID != uid || !isReserved(now, w.pod) {
			return now, nil
		}
		next := now.DeepCopy()
		next.Status.ReservedFor = slices.DeleteFunc(next.Status.ReservedFor,
			func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == w.pod.UID })
		_, err := w.deps.Client.Update(ctx, gr.ResourceClaims, next, "status")
		return next, err
	})
	return err
}

// postFilter deallocates a claim whose devices are not reachable from the nodes that are otherwise feasible, if no
// other Pod uses it. It also deletes a claim for extended resources of an earlier attempt.
func (d *dynamicResources) postFilter(ctx context.Context, a framework.PostFilterInput) framework.PostFilterResult {
	pod := a.Pod.Pod
	claims, err := podClaims(a.Snapshot.Cluster, pod)
	if err != nil {
		return framework.PostFilterResult{}
	}
	for _, claim := range claims {
		others := slices.ContainsFunc(claim.Status.ReservedFor,
			func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID != pod.UID })
		if claim.Status.Allocation == nil || others || !d.blocksPod(a, claim) {
			continue
		}
		next := claim.DeepCopy()
		next.Status.ReservedFor, next.Status.Allocation, next.Status.Devices = nil, nil, nil
		if _, err := d.deps.Client.Update(ctx, gr.ResourceClaims, next, "status"); err != nil {
			return framework.PostFilterResult{Message: err.Error(), Final: true}
		}
		return framework.PostFilterResult{Message: "deallocation of ResourceClaim completed"}
	}
	if e := extendedRequestsOf(a.Snapshot.Cluster, a.Pod); e != nil && e.staleClaim != nil && !d.pending.has(pod.UID) {
		if err := d.deleteClaim(ctx, e.staleClaim); err != nil {
			return framework.PostFilterResult{Message: err.Error(), Final: true}
		}
		return framework.PostFilterResult{Message: "deletion of ResourceClaim completed"}
	}
	return framework.PostFilterResult{}
}

// blocksPod reports whether a node was rejected because the devices of a claim are not reachable from it, or have
// failed to become ready.
func (d *dynamicResources) blocksPod(a framework.PostFilterInput, claim *resourcev1.ResourceClaim) bool {
	w := &podDevices{dynamicResources: d, pod: a.Pod.Pod}
	if r := w.classify(a.Snapshot.Cluster, claim); r != nil || len(w.allocated) == 0 {
		return false
	}
	return slices.ContainsFunc(a.Decision.Rejections, func(v framework.NodeRejection) bool {
		n := a.Snapshot.Node(v.Node)
		return v.Plugin == pluginName && n != nil && !w.allocated[0].isReachableFrom(n.Node)
	})
}
