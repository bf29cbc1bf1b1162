package schedule

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// BindingArgs are the arguments of VolumeBinding.
type BindingArgs struct {
	// Timeout is how long a pod waits for its volumes after its node is chosen.
	Timeout time.Duration
	// Shape is the score of storage by how much of it is used.
	Shape []Point
}

// VolumeBinding lets a pod only where its volumes are, or can be. Claims that wait for their pod get a volume there that
// exists, or one is to be made there. This is settled before the pod is bound.
func VolumeBinding(args BindingArgs, deps Deps) Plugin {
	b := &volumeBinding{args: args, deps: deps, assumed: newAssumed(), verdicts: troubleVerdicts()}
	return Plugin{
		Name: "VolumeBinding",
		Reads: []schema.GroupResource{
			gr.PersistentVolumeClaims, gr.PersistentVolumes, gr.StorageClasses, gr.CSINodes, gr.CSIDrivers, gr.CSIStorageCapacities,
		},
		Wakes: []Wake{
			{On: StorageClass, Do: Add | Update, If: func(_ *corev1.Pod, was, is kind.Object) bool {
				return was == nil || !equality.Semantic.DeepEqual(was.(*storagev1.StorageClass).AllowedTopologies, is.(*storagev1.StorageClass).AllowedTopologies)
			}},
			{On: VolumeClaim, Do: Add | Update, If: wantsClaim},
			{On: PersistentVolume, Do: Add | Update},
			{On: NodeResource, Do: Add | NodeLabel},
			{On: CSIDriver, Do: Update, If: func(_ *corev1.Pod, was, is kind.Object) bool {
				return orElse(was.(*storagev1.CSIDriver).Spec.StorageCapacity, false) && !orElse(is.(*storagev1.CSIDriver).Spec.StorageCapacity, false)
			}},
			{On: CSIStorageCapacity, Do: Add | Update, If: func(_ *corev1.Pod, was, is kind.Object) bool {
				return was == nil || largestVolume(is.(*storagev1.CSIStorageCapacity)) > largestVolume(was.(*storagev1.CSIStorageCapacity))
			}},
		},
		Prepare: b.prepare,
	}
}

type volumeBinding struct {
	args     BindingArgs
	deps     Deps
	assumed  *assumed
	verdicts [allTrouble + 1]*Verdict
}

// volumeTrouble is a set of reasons why a node will not do, in the order in which they are given.
type volumeTrouble uint8

const (
	wrongPlace volumeTrouble = 1 << iota
	nothingToBind
	noSpace
	volumeGone
	allTrouble = wrongPlace | nothingToBind | noSpace | volumeGone
)

// troubleVerdicts are the verdicts of all sets of reasons, made once because nodes share them.
func troubleVerdicts() (out [allTrouble + 1]*Verdict) {
	reasons := []string{
		"node(s) didn't match PersistentVolume's node affinity", "node(s) didn't find available persistent volumes to bind",
		"node(s) did not have enough free storage", "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
	}
	for t := 1; t < len(out); t++ {
		out[t] = &Verdict{Unresolvable: true}
		for i, r := range reasons {
			if t&(1<<i) != 0 {
				out[t].Reasons = append(out[t].Reasons, r)
			}
		}
	}
	return out
}

// volumePlan is what is to be done for the volumes of a pod on one node.
type volumePlan struct {
	bind      []volumeMatch
	provision []provision
}

type volumeMatch struct {
	claim  *corev1.PersistentVolumeClaim
	volume *corev1.PersistentVolume
}

type provision struct {
	claim    *corev1.PersistentVolumeClaim
	capacity *storagev1.CSIStorageCapacity // where it is to come from, if that is known
}

func (b *volumeBinding) prepare(s *Snapshot, p *PodInfo) Prepared {
	if !hasClaims(p.Pod) {
		return Silent()
	}
	if err := usable(s.Cluster, p.Pod); err != nil {
		return Prepared{Reject: NotEver(err.Error())}
	}
	v, err := b.sort(s.Cluster, p.Pod)
	if err != nil {
		return Prepared{Reject: Failed(err)}
	}
	if v.immediate {
		return Prepared{Reject: NotEver("pod has unbound immediate PersistentVolumeClaims")}
	}
	plans := map[string]*volumePlan{}
	out := Prepared{
		Update: func(*NodeInfo, *PodInfo, int) bool { return true },
		Filter: func(n *NodeInfo) *Verdict {
			plan, trouble, err := v.plan(n.Node)
			if err != nil {
				return Failed(err)
			}
			if trouble == 0 {
				plans[n.Name()] = plan
			}
			return b.verdicts[trouble]
		},
	}
	if len(v.waiting) == 0 {
		return out
	}
	out.Score = func(n *NodeInfo) int64 { return plans[n.Name()].score(b.args.Shape) }
	binding := &bindingWork{volumeBinding: b, pod: p.Pod}
	out.Reserve = func(node string) *Verdict { return binding.reserve(node, plans[node]) }
	out.Unreserve = func(string) { binding.unreserve() }
	out.PreBind = binding.preBind
	return out
}

// usable is an error if a claim of a pod is not there, or will not be for long.
func usable(c Cluster, pod *corev1.Pod) error {
	for i := range pod.Spec.Volumes {
		name, own := claimName(pod, &pod.Spec.Volumes[i])
		if name == "" {
			continue
		}
		claim, err := getClaim(c, pod.Namespace, name)
		switch {
		case err != nil && own:
			return fmt.Errorf("waiting for ephemeral volume controller to create the persistentvolumeclaim %q", name)
		case err != nil:
			return err
		case claim.Status.Phase == corev1.ClaimLost:
			return fmt.Errorf("persistentvolumeclaim %q bound to non-existent persistentvolume %q", claim.Name, claim.Spec.VolumeName)
		case claim.DeletionTimestamp != nil:
			return fmt.Errorf("persistentvolumeclaim %q is being deleted", claim.Name)
		case own:
			if err := foreign(pod, claim); err != nil {
				return err
			}
		}
	}
	return nil
}

// sort finds out which claims of a pod are bound, which wait for it, and what volumes those may get.
func (b *volumeBinding) sort(c Cluster, pod *corev1.Pod) (*podVolumes, error) {
	v := &podVolumes{cluster: c, free: map[string][]*placedVolume{}, places: map[string]*placedVolume{}}
	for i := range pod.Spec.Volumes {
		name, _ := claimName(pod, &pod.Spec.Volumes[i])
		if name == "" {
			continue
		}
		claim, err := getClaim(c, pod.Namespace, name)
		if err != nil {
			return nil, err
		}
		claim = b.assumed.claim(claim)
		if isBound(claim) {
			v.bound = append(v.bound, claim)
			continue
		}
		class, err := getClass(c, classOf(claim))
		if err == nil && class.VolumeBindingMode == nil {
			return nil, fmt.Errorf("VolumeBindingMode not set for StorageClass %q", class.Name)
		}
		if err != nil || *class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer || claim.Spec.VolumeName != "" {
			v.immediate = true
			continue
		}
		v.waiting = append(v.waiting, claim)
		v.free[class.Name] = nil
	}
	if len(v.waiting) > 0 {
		for o := range c.List(gr.PersistentVolumes, "") {
			volume := b.assumed.volume(o.(*corev1.PersistentVolume))
			if of := classOfVolume(volume); v.wants(of) {
				v.free[of] = append(v.free[of], placeVolume(volume))
			}
		}
	}
	slices.SortStableFunc(v.waiting, func(a, b *corev1.PersistentVolumeClaim) int { return size(a).Cmp(*size(b)) })
	return v, nil
}

// score is how much of the storage is used, as the shape says: that of the volumes to bind, or else of where new ones come from.
func (p *volumePlan) score(shape []Point) int64 {
	if p == nil {
		return 0
	}
	type use struct{ asked, has int64 }
	classes := map[string]use{}
	for _, m := range p.bind {
		has := m.volume.Spec.Capacity[corev1.ResourceStorage]
		u := classes[m.volume.Spec.StorageClassName]
		classes[m.volume.Spec.StorageClassName] = use{u.asked + size(m.claim).Value(), u.has + has.Value()}
	}
	if len(p.bind) == 0 {
		for _, n := range p.provision {
			if n.capacity == nil || n.capacity.Capacity == nil {
				continue
			}
			class := classOf(n.claim)
			classes[class] = use{classes[class].asked + size(n.claim).Value(), n.capacity.Capacity.Value()}
		}
	}
	if len(classes) == 0 {
		return 0
	}
	var sum int64
	for u := range maps.Values(classes) {
		if u.has == 0 || u.asked > u.has {
			sum += along(shape, 100)
		} else {
			sum += along(shape, u.asked*100/u.has)
		}
	}
	return int64(math.Round(float64(sum) / float64(len(classes))))
}
