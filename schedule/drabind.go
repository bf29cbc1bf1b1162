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
	claims map[types.UID]pledge
}

// pledge is one of them. The claim of a pod for its extended resources is made only then; it goes by the UID of the pod.
type pledge struct {
	*resourcev1.AllocationResult
	pod *corev1.Pod
}

func newFlying() *flying { return &flying{claims: map[types.UID]pledge{}} }

func (f *flying) set(uid types.UID, a pledge) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.claims[uid] = a
}

func (f *flying) landed(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.claims, uid)
}

// keep forgets the allocations of claims that are gone, or that nobody needs any more.
func (f *flying) keep(there func(types.UID) bool, needed func(*corev1.Pod) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.claims, func(uid types.UID, a pledge) bool {
		if a.pod != nil {
			return !needed(a.pod)
		}
		return !there(uid)
	})
}

func (f *flying) has(uid types.UID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, is := f.claims[uid]
	return is
}

func (f *flying) each(do func(*resourcev1.AllocationResult)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.claims {
		do(a.AllocationResult)
	}
}

// reserve takes the devices that were found on the node.
func (w *devicesOf) reserve(node string) *Verdict {
	found, is := w.found[node]
	if !is && len(w.open) == 0 {
		return nil
	}
	if !is {
		return Failed(errors.New("claim allocation not found for node"))
	}
	w.reserved = found
	for i, c := range w.open {
		w.flying.set(c.UID, pledge{AllocationResult: &found.results[i]})
	}
	if found.extended != nil {
		w.flying.set(w.pod.UID, pledge{&found.results[len(w.open)], w.pod})
	}
	return nil
}

// unreserve gives them back. An allocation that is written already stays, and the pod finds it when it is tried again; but its claims
// are no longer reserved for it, and the claim that was made for it goes.
func (w *devicesOf) unreserve() {
	w.letGo()
	for _, c := range w.open {
		w.flying.landed(c.UID)
	}
	w.reserved = finding{}
	if w.extended == nil {
		return
	}
	made := w.made
	if w.made = nil; made == nil {
		w.flying.landed(w.pod.UID)
		return
	}
	w.deps.Go(func(ctx context.Context) {
		defer w.flying.landed(w.pod.UID)
		if err := w.dropClaim(ctx, made); err != nil {
			w.deps.Log.WarnContext(ctx, "delete a claim for extended resources", "namespace", made.Namespace, "name", made.Name, "err", err)
		}
	})
}

// preBind writes the allocations, and that the claims are used by the pod. Then it waits until the devices are ready.
func (w *devicesOf) preBind(ctx context.Context, node string) error {
	var claims []*resourcev1.ResourceClaim
	for i, c := range w.open {
		wrote, err := w.write(ctx, c, &w.reserved.results[i])
		if err != nil {
			return err
		}
		claims = append(claims, wrote)
		w.wrote = append(w.wrote, wrote)
	}
	for _, c := range w.settled {
		wrote := c.ResourceClaim
		if !isReserved(wrote, w.pod) {
			var err error
			if wrote, err = w.write(ctx, wrote, nil); err != nil {
				return err
			}
		}
		claims = append(claims, wrote)
		w.wrote = append(w.wrote, wrote)
	}
	if e := w.reserved.extended; e != nil {
		wrote, err := w.makeExtended(ctx, e, &w.reserved.results[len(w.open)])
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

// write puts the pod, and an allocation if there is a new one, into the status of a claim.
func (w *devicesOf) write(ctx context.Context, claim *resourcev1.ResourceClaim, a *resourcev1.AllocationResult) (*resourcev1.ResourceClaim, error) {
	return w.insist(ctx, claim, func(now *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error) {
		return w.writeOnce(ctx, now.DeepCopy(), a)
	})
}

// insist changes a claim. A conflict means another look.
func (w *devicesOf) insist(ctx context.Context, claim *resourcev1.ResourceClaim, change func(now *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error)) (*resourcev1.ResourceClaim, error) {
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

func (w *devicesOf) writeOnce(ctx context.Context, claim *resourcev1.ResourceClaim, a *resourcev1.AllocationResult) (*resourcev1.ResourceClaim, error) {
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
		// The claim must not go before its devices are given back.
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
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: w.pod.Name, UID: w.pod.UID})
	}
	o, err := w.deps.Client.Update(ctx, gr.ResourceClaims, claim, "status")
	if err != nil {
		return nil, fmt.Errorf("%s%s: %w", what, name, err)
	}
	return o.(*resourcev1.ResourceClaim), nil
}

// letGo takes the pod out of the claims that are reserved for it. It returns when that is done: the next try of the pod reserves them
// again. One that cannot be written stays as it is until then.
func (w *devicesOf) letGo() {
	wrote := w.wrote
	if w.wrote = nil; len(wrote) == 0 {
		return
	}
	done := make(chan struct{})
	w.deps.Go(func(ctx context.Context) {
		defer close(done)
		for _, claim := range wrote {
			if err := w.withdraw(ctx, claim); err != nil && !apierrors.IsNotFound(err) {
				w.deps.Log.WarnContext(ctx, "take a pod out of its claim", "namespace", claim.Namespace, "name", claim.Name, "err", err)
			}
		}
	})
	<-done
}

func (w *devicesOf) withdraw(ctx context.Context, claim *resourcev1.ResourceClaim) error {
	uid := claim.UID
	_, err := w.insist(ctx, claim, func(now *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error) {
		if now.UID != uid || !isReserved(now, w.pod) {
			return now, nil
		}
		next := now.DeepCopy()
		next.Status.ReservedFor = slices.DeleteFunc(next.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == w.pod.UID })
		_, err := w.deps.Client.Update(ctx, gr.ResourceClaims, next, "status")
		return next, err
	})
	return err
}

// rescue gives the devices of a claim back that keep the pod off the nodes it could go to, if nobody else uses them. What an
// earlier try has left for extended resources goes, too.
func (d *dynamicResources) rescue(ctx context.Context, a Attempt) Rescue {
	pod := a.Pod.Pod
	claims, err := podClaims(a.Snapshot.Cluster, pod)
	if err != nil {
		return Rescue{}
	}
	for _, claim := range claims {
		others := slices.ContainsFunc(claim.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID != pod.UID })
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
	if e := extendedOf(a.Snapshot.Cluster, a.Pod); e != nil && e.left != nil && !d.flying.has(pod.UID) {
		if err := d.dropClaim(ctx, e.left); err != nil {
			return Rescue{Message: err.Error(), Done: true}
		}
		return Rescue{Message: "deletion of ResourceClaim completed"}
	}
	return Rescue{}
}

// inTheWay says that some node was rejected because the devices of a claim are elsewhere, or do not become ready.
func (d *dynamicResources) inTheWay(a Attempt, claim *resourcev1.ResourceClaim) bool {
	w := &devicesOf{dynamicResources: d, pod: a.Pod.Pod}
	if v := w.sort(a.Snapshot.Cluster, claim); v != nil || len(w.settled) == 0 {
		return false
	}
	return slices.ContainsFunc(a.Decision.Verdicts, func(v NodeVerdict) bool {
		n := a.Snapshot.Node(v.Node)
		return v.Plugin == draName && n != nil && !w.settled[0].reaches(n.Node)
	})
}
