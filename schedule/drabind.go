package schedule

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

	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// flying are allocations that are decided and not yet seen in the cluster, by claim.
type flying struct {
	mu     sync.Mutex // guards claims
	claims map[types.UID]*resourcev1.AllocationResult
}

func newFlying() *flying { return &flying{claims: map[types.UID]*resourcev1.AllocationResult{}} }

func (f *flying) set(uid types.UID, a *resourcev1.AllocationResult) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.claims[uid] = a
}

func (f *flying) landed(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.claims, uid)
}

// keep forgets the allocations of claims that are gone.
func (f *flying) keep(there map[types.UID]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.claims, func(uid types.UID, _ *resourcev1.AllocationResult) bool { return !there[uid] })
}

func (f *flying) has(uid types.UID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.claims[uid] != nil
}

func (f *flying) each(do func(*resourcev1.AllocationResult)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.claims {
		do(a)
	}
}

// reserve takes the devices that were found on the node.
func (w *devicesOf) reserve(node string) *Verdict {
	if len(w.open) == 0 {
		return nil
	}
	results, found := w.found[node]
	if !found {
		return Failed(errors.New("claim allocation not found for node"))
	}
	w.reserved = results
	for i, c := range w.open {
		w.flying.set(c.UID, &results[i])
	}
	return nil
}

// unreserve gives them back. What is written already stays; the pod finds its claims allocated when it is tried again.
func (w *devicesOf) unreserve() {
	for _, c := range w.open {
		w.flying.landed(c.UID)
	}
	w.reserved = nil
}

// preBind writes the allocations, and that the claims are used by the pod.
func (w *devicesOf) preBind(ctx context.Context, _ string) error {
	for i, c := range w.open {
		if err := w.write(ctx, c, &w.reserved[i]); err != nil {
			return err
		}
	}
	for _, c := range w.settled {
		if isReserved(c.ResourceClaim, w.pod) {
			continue
		}
		if err := w.write(ctx, c.ResourceClaim, nil); err != nil {
			return err
		}
	}
	return nil
}

func isReserved(claim *resourcev1.ResourceClaim, pod *corev1.Pod) bool {
	return slices.ContainsFunc(claim.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == pod.UID })
}

// write puts the pod, and an allocation if there is a new one, into the status of a claim. A conflict means another look.
func (w *devicesOf) write(ctx context.Context, claim *resourcev1.ResourceClaim, a *resourcev1.AllocationResult) error {
	var err error
	for try := 0; try < 5; try++ {
		if try > 0 {
			o, err := w.deps.Client.Get(ctx, gr.ResourceClaims, claim.Namespace, claim.Name, "")
			if err != nil {
				return fmt.Errorf("get updated claim %s/%s after conflict: %w", claim.Namespace, claim.Name, err)
			}
			claim = o.(*resourcev1.ResourceClaim)
		}
		if err = w.writeOnce(ctx, claim.DeepCopy(), a); err == nil || !apierrors.IsConflict(err) {
			return err
		}
	}
	return err
}

func (w *devicesOf) writeOnce(ctx context.Context, claim *resourcev1.ResourceClaim, a *resourcev1.AllocationResult) error {
	name := claim.Namespace + "/" + claim.Name
	if claim.DeletionTimestamp != nil {
		return fmt.Errorf("claim %s got deleted in the meantime", name)
	}
	what := "add reservation to claim "
	if a != nil {
		what = "add allocation and reservation to claim "
		if claim.Status.Allocation != nil {
			return fmt.Errorf("claim %s got allocated elsewhere in the meantime", name)
		}
		// The claim must not go before its devices are given back.
		if !slices.Contains(claim.Finalizers, resourcev1.Finalizer) {
			claim.Finalizers = append(claim.Finalizers, resourcev1.Finalizer)
			var o kind.Object
			var err error
			if o, err = w.deps.Client.Update(ctx, gr.ResourceClaims, claim, ""); err != nil {
				return fmt.Errorf("add finalizer to claim %s: %w", name, err)
			}
			claim = o.(*resourcev1.ResourceClaim)
		}
		claim.Status.Allocation = a.DeepCopy()
	}
	if claim.Status.Allocation == nil {
		return fmt.Errorf("claim %s got deallocated elsewhere in the meantime", name)
	}
	if claim.Status.Allocation.AllocationTimestamp == nil {
		claim.Status.Allocation.AllocationTimestamp = &metav1.Time{Time: metav1.Now().Time}
	}
	if !isReserved(claim, w.pod) {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: w.pod.Name, UID: w.pod.UID})
	}
	if _, err := w.deps.Client.Update(ctx, gr.ResourceClaims, claim, "status"); err != nil {
		return fmt.Errorf("%s%s: %w", what, name, err)
	}
	return nil
}

// rescue gives the devices of a claim back that keep the pod off the nodes it could go to, if nobody else uses them.
func (d *dynamicResources) rescue(ctx context.Context, a Attempt) Rescue {
	if len(a.Pod.Pod.Spec.ResourceClaims) == 0 {
		return Rescue{}
	}
	claims, err := podClaims(a.Snapshot.Cluster, a.Pod.Pod)
	if err != nil {
		return Rescue{}
	}
	for _, claim := range claims {
		others := slices.ContainsFunc(claim.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID != a.Pod.Pod.UID })
		if claim.Status.Allocation == nil || others || !d.inTheWay(a, claim) {
			continue
		}
		next := claim.DeepCopy()
		next.Status.ReservedFor, next.Status.Allocation, next.Status.Devices = nil, nil, nil
		if _, err := d.deps.Client.Update(ctx, gr.ResourceClaims, next, "status"); err != nil {
			return Rescue{Message: err.Error(), Done: true}
		}
		return Rescue{Message: "deallocation of ResourceClaim completed"}
	}
	return Rescue{}
}

// inTheWay says that some node was rejected because the devices of a claim are elsewhere.
func (d *dynamicResources) inTheWay(a Attempt, claim *resourcev1.ResourceClaim) bool {
	w := &devicesOf{dynamicResources: d, pod: a.Pod.Pod}
	if v := w.sort(a.Snapshot.Cluster, claim); v != nil || len(w.settled) == 0 || w.settled[0].from == nil {
		return false
	}
	return slices.ContainsFunc(a.Decision.Verdicts, func(v NodeVerdict) bool {
		n := a.Snapshot.Node(v.Node)
		return v.Plugin == draName && n != nil && !w.settled[0].from.Match(n.Node)
	})
}
