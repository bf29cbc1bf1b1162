package volumes

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/schedule/framework"
)

// bindingArgs are the arguments of VolumeBinding.
type bindingArgs struct {
	// Timeout is how long a Pod waits for its volumes after its node was chosen.
	Timeout time.Duration
	// Shape is the score of a node by the utilization of its storage.
	Shape []framework.ShapePoint
}

// newBinding returns the plugin VolumeBinding, which rejects nodes from which the volumes of the Pod cannot be reached.
// For claims that wait for their first consumer, it finds a volume or lets one be provisioned, before the Pod is bound.
func newBinding(args bindingArgs, deps framework.Deps) framework.Plugin {
	b := &volumeBinding{args: args, deps: deps, assumed: newAssumed(), rejections: conflictRejections()}
	return framework.Plugin{
		Name: "VolumeBinding",
		Reads: []schema.GroupResource{
			gr.PersistentVolumeClaims, gr.PersistentVolumes, gr.StorageClasses, gr.CSINodes, gr.CSIDrivers, gr.CSIStorageCapacities,
		},
		QueueingHints: []framework.QueueingHint{
			{On: framework.StorageClass, Do: framework.Add | framework.Update, If: func(_ *corev1.Pod, was, is kind.Object) bool {
				return was == nil || !equality.Semantic.DeepEqual(was.(*storagev1.StorageClass).AllowedTopologies,
					is.(*storagev1.StorageClass).AllowedTopologies)
			}},
			{On: framework.VolumeClaim, Do: framework.Add | framework.Update, If: isOwnClaim},
			{On: framework.PersistentVolume, Do: framework.Add | framework.Update},
			{On: framework.NodeResource, Do: framework.Add | framework.NodeLabel},
			{On: framework.CSIDriver, Do: framework.Update, If: func(_ *corev1.Pod, was, is kind.Object) bool {
				return ptr.Deref(was.(*storagev1.CSIDriver).Spec.StorageCapacity, false) &&
					!ptr.Deref(is.(*storagev1.CSIDriver).Spec.StorageCapacity, false)
			}},
			{On: framework.CSIStorageCapacity, Do: framework.Add | framework.Update, If: func(_ *corev1.Pod, was, is kind.Object) bool {
				return was == nil || largestVolume(is.(*storagev1.CSIStorageCapacity)) > largestVolume(was.(*storagev1.CSIStorageCapacity))
			}},
		},
		Prepare: b.prepare,
	}
}

type volumeBinding struct {
	args       bindingArgs
	deps       framework.Deps
	assumed    *assumed
	rejections [allConflicts + 1]*framework.Rejection
}

// conflict is a set of reasons why a node is not suitable, in the order in which they are given.
type conflict uint8

const (
	nodeAffinityConflict conflict = 1 << iota
	noVolumeToBind
	notEnoughSpace
	volumeMissing
	allConflicts = nodeAffinityConflict | noVolumeToBind | notEnoughSpace | volumeMissing
)

// conflictRejections returns the rejections for all sets of reasons. They are made once, because nodes share them.
func conflictRejections() (out [allConflicts + 1]*framework.Rejection) {
	reasons := []string{
		"node(s) didn't match PersistentVolume's node affinity", "node(s) didn't find available persistent volumes to bind",
		"node(s) did not have enough free storage", "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
	}
	for t := 1; t < len(out); t++ {
		out[t] = &framework.Rejection{Unresolvable: true}
		for i, r := range reasons {
			if t&(1<<i) != 0 {
				out[t].Reasons = append(out[t].Reasons, r)
			}
		}
	}
	return out
}

// volumePlan has the claims to bind and to provision for a Pod on one node.
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
	capacity *storagev1.CSIStorageCapacity // the capacity that is used, if known
}

func (b *volumeBinding) prepare(s *framework.Snapshot, p *framework.PodInfo) framework.Prepared {
	if !hasClaims(p.Pod) {
		return framework.Skip()
	}
	if err := checkClaims(s.Cluster, p.Pod); err != nil {
		return framework.Prepared{Reject: framework.Unresolvable(err.Error())}
	}
	v, err := b.classifyClaims(s.Cluster, p.Pod)
	if err != nil {
		return framework.Prepared{Reject: framework.Failed(err)}
	}
	if v.immediate {
		return framework.Prepared{Reject: framework.Unresolvable("pod has unbound immediate PersistentVolumeClaims")}
	}
	plans := map[string]*volumePlan{}
	out := framework.Prepared{
		Update: func(*framework.NodeInfo, *framework.PodInfo, int) bool { return true },
		Filter: func(n *framework.NodeInfo) *framework.Rejection {
			plan, trouble, err := v.plan(n.Node)
			if err != nil {
				return framework.Failed(err)
			}
			if trouble == 0 {
				plans[n.Name()] = plan
			}
			return b.rejections[trouble]
		},
	}
	if len(v.waiting) == 0 {
		return out
	}
	out.Score = func(n *framework.NodeInfo) int64 { return plans[n.Name()].score(b.args.Shape) }
	binding := &podBinding{volumeBinding: b, pod: p.Pod}
	out.Reserve = func(node string) *framework.Rejection { return binding.reserve(node, plans[node]) }
	out.Unreserve = func(string) { binding.unreserve() }
	out.PreBind = binding.preBind
	return out
}

// checkClaims returns an error if a claim of a Pod does not exist, is lost or is being deleted.
func checkClaims(c framework.Cluster, pod *corev1.Pod) error {
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
			if err := checkOwner(pod, claim); err != nil {
				return err
			}
		}
	}
	return nil
}

// classifyClaims returns the claims of a Pod by whether they are bound or wait for the Pod, with the volumes that the
// latter may get.
func (b *volumeBinding) classifyClaims(c framework.Cluster, pod *corev1.Pod) (*podVolumes, error) {
	v := &podVolumes{cluster: c, free: map[string][]*volumeAffinity{}, places: map[string]*volumeAffinity{}}
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
		class, err := getClass(c, storageClassOf(claim))
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
			if of := storageClassOfVolume(volume); v.needsClass(of) {
				v.free[of] = append(v.free[of], parseVolumeAffinity(volume))
			}
		}
	}
	slices.SortStableFunc(v.waiting, func(a, b *corev1.PersistentVolumeClaim) int { return requestedSize(a).Cmp(*requestedSize(b)) })
	return v, nil
}

// score returns the score of the storage utilization: of the volumes to bind, or else of the capacities for new
// volumes.
func (p *volumePlan) score(shape []framework.ShapePoint) int64 {
	if p == nil {
		return 0
	}
	type use struct{ asked, has int64 }
	classes := map[string]use{}
	for _, m := range p.bind {
		has := m.volume.Spec.Capacity[corev1.ResourceStorage]
		u := classes[m.volume.Spec.StorageClassName]
		classes[m.volume.Spec.StorageClassName] = use{u.asked + requestedSize(m.claim).Value(), u.has + has.Value()}
	}
	if len(p.bind) == 0 {
		for _, n := range p.provision {
			if n.capacity == nil || n.capacity.Capacity == nil {
				continue
			}
			class := storageClassOf(n.claim)
			classes[class] = use{classes[class].asked + requestedSize(n.claim).Value(), n.capacity.Capacity.Value()}
		}
	}
	if len(classes) == 0 {
		return 0
	}
	var sum int64
	for u := range maps.Values(classes) {
		if u.has == 0 || u.asked > u.has {
			sum += framework.Interpolate(shape, 100)
		} else {
			sum += framework.Interpolate(shape, u.asked*100/u.has)
		}
	}
	return int64(math.Round(float64(sum) / float64(len(classes))))
}

// NewBinding returns the plugin VolumeBinding.
func NewBinding(deps framework.Deps, raw json.RawMessage) (framework.Plugin, error) {
	var args configv1.VolumeBindingArgs
	if err := framework.DecodeArgs(raw, &args); err != nil {
		return framework.Plugin{}, err
	}
	if len(args.Shape) == 0 { // the emptier the better
		args.Shape = []configv1.UtilizationShapePoint{{Utilization: 0, Score: framework.MaxShapeScore}, {Utilization: 100, Score: 0}}
	}
	var errs field.ErrorList
	if args.BindTimeoutSeconds != nil && *args.BindTimeoutSeconds < 0 {
		errs = append(errs, field.Invalid(field.NewPath("bindTimeoutSeconds"), *args.BindTimeoutSeconds,
			"invalid BindTimeoutSeconds, should not be a negative value"))
	}
	errs = append(errs, framework.CheckShape(args.Shape, field.NewPath("shape"))...)
	if err := errs.ToAggregate(); err != nil {
		return framework.Plugin{}, err
	}
	out := bindingArgs{Timeout: time.Duration(ptr.Deref(args.BindTimeoutSeconds, 600)) * time.Second}
	for _, p := range args.Shape {
		out.Shape = append(out.Shape, framework.ShapePoint{Utilization: int64(p.Utilization),
			Score: int64(p.Score) * (framework.MaxScore / framework.MaxShapeScore)})
	}
	return newBinding(out, deps), nil
}
