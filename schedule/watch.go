package schedule

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/kinds/gr"
)

// load takes over all that is there before the first pod is tried, so that no decision is made on half a cluster.
func (s *scheduler) load() {
	for o := range s.views[gr.Nodes].List("") {
		s.onNode(client.Event{Object: o})
	}
	for o := range s.views[gr.Pods].List("") {
		s.onPod(client.Event{Object: o})
	}
}

// watch hands over the changes of a resource. After a gap what is gone is found by looking.
func (s *scheduler) watch(ctx context.Context, r schema.GroupResource, handle func(client.Event)) {
	for ev := range s.views[r].Events(ctx) {
		if ev.Gap {
			s.afterGap(r)
			continue
		}
		handle(ev)
	}
}

// afterGap drops the nodes and pods that are no longer in the view.
func (s *scheduler) afterGap(r schema.GroupResource) {
	there := map[types.UID]bool{}
	names := map[string]bool{}
	for o := range s.views[r].List("") {
		there[o.GetUID()], names[o.GetName()] = true, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.signal()
	switch r {
	case gr.Nodes:
		for n := range s.state.Snapshot().All() {
			if !names[n.Name()] {
				s.removeNode(n.Node)
			}
		}
	case gr.Pods:
		for _, p := range s.state.pods() {
			if !there[p.Pod.UID] {
				s.gone(p.Pod)
			}
		}
		for uid, e := range s.queue.entries {
			if !there[uid] {
				s.gone(e.Pod.Pod)
			}
		}
	default:
		s.state.Touch()
	}
}

func (s *scheduler) onNode(ev client.Event) {
	node := ev.Object.(*corev1.Node)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.signal()
	now := time.Now()
	if ev.Deleted {
		s.removeNode(node)
		return
	}
	// What was before is what is known here, which after a gap is older than what the event says.
	was := s.state.node(node.Name)
	if was == nil {
		s.state.SetNode(node)
		s.nominated.tell(s.state, node.Name)
		s.queue.Happened(NodeResource, Add, nil, node, "", now)
		return
	}
	if matters(was, node) {
		s.state.SetNode(node)
	} else {
		s.state.refreshNode(node)
	}
	if do := nodeChange(was, node); do != 0 {
		s.queue.Happened(NodeResource, do, was, node, "", now)
	}
}

func (s *scheduler) removeNode(node *corev1.Node) {
	s.queue.Happened(NodeResource, Delete, node, nil, "", time.Now())
	s.state.RemoveNode(node.Name)
}

// onPod sorts the changes of pods. A pod that has ended takes no room, so it is as good as gone.
func (s *scheduler) onPod(ev client.Event) {
	pod := ev.Object.(*corev1.Pod)
	was, _ := ev.Old.(*corev1.Pod)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.signal()
	switch {
	case ev.Deleted || ended(pod):
		s.gone(pod)
	case pod.Spec.NodeName != "":
		s.bound(pod)
	case s.responsible(pod):
		s.wants(was, pod)
	}
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// gone forgets a pod.
func (s *scheduler) gone(pod *corev1.Pod) {
	now := time.Now()
	uid := pod.UID
	s.queue.Remove(uid)
	nominee := s.nominated.of(uid)
	s.nominated.set(s.state, &PodInfo{Pod: pod}, "")
	if p := s.assumed[uid]; p != nil && pod.Spec.NodeName == "" {
		// Its binding will fail; the room is free now.
		delete(s.assumed, uid)
		s.state.RemovePod(uid)
		s.queue.Happened(AssignedPod, Delete, withNode(p.Pod, "?"), nil, uid, now)
		return
	}
	delete(s.assumed, uid)
	if pod.Spec.NodeName != "" {
		if _, on := s.state.Home(uid); on {
			s.state.RemovePod(uid)
			s.queue.Happened(AssignedPod, Delete, pod, nil, uid, now)
		}
		return
	}
	if nominee != "" {
		s.queue.Freed(pod, nominee, now)
	}
}

// withNode is a pod as if it were on a node, which is what its departure means for others.
func withNode(pod *corev1.Pod, node string) *corev1.Pod {
	if pod.Spec.NodeName != "" {
		return pod
	}
	out := *pod
	out.Spec.NodeName = node
	return &out
}

// bound counts a pod that has a node.
func (s *scheduler) bound(pod *corev1.Pod) {
	now := time.Now()
	before := s.state.homes[pod.UID].pod
	p := s.state.Renewed(pod)
	s.state.AddPod(p, pod.Spec.NodeName)
	if before == nil || s.assumed[pod.UID] != nil {
		s.queue.Remove(pod.UID)
		delete(s.assumed, pod.UID)
		s.nominated.set(s.state, p, "")
		s.queue.Happened(AssignedPod, Add, nil, pod, "", now)
		return
	}
	if do := podChange(before, p); s.queue.cares(AssignedPod, do) {
		s.queue.Happened(AssignedPod, do, before.Pod, pod, "", now)
	}
}

// wants puts a pod without a node into the queue, unless it is on its way already.
func (s *scheduler) wants(was, pod *corev1.Pod) {
	now := time.Now()
	if a := s.assumed[pod.UID]; a != nil {
		if pod.DeletionTimestamp != nil && a.Pod.DeletionTimestamp == nil {
			s.gone(pod)
		}
		return
	}
	if e := s.queue.Get(pod.UID); e != nil && e.Pod.Pod.ResourceVersion == pod.ResourceVersion {
		return
	}
	p := NewPodInfo(pod)
	s.queue.Add(p, now)
	if was == nil && s.queue.cares(UnscheduledPod, Add) {
		s.queue.Happened(UnscheduledPod, Add, nil, pod, pod.UID, now)
	}
	node, old := pod.Status.NominatedNodeName, s.nominated.of(pod.UID)
	if node == "" && (was == nil || was.Status.NominatedNodeName == "") {
		node = old // it may be known here before it is written
	}
	s.nominated.set(s.state, p, node)
	if old != "" && old != node { // others counted it as if it were there
		s.queue.Freed(pod, old, now)
	}
}

// onOther notes changes of what only plugins read.
func (s *scheduler) onOther(r schema.GroupResource, ev client.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.signal()
	was, is := ev.Old, ev.Object
	if ev.Deleted {
		was, is = ev.Object, nil
	}
	if unsettles(r, was, is) {
		s.state.Touch()
	}
	on, watched := resourceOf(r)
	if !watched {
		return
	}
	now := time.Now()
	switch {
	case ev.Deleted:
		s.queue.Happened(on, Delete, ev.Object, nil, "", now)
	case ev.Old == nil:
		s.queue.Happened(on, Add, nil, ev.Object, "", now)
	default:
		s.queue.Happened(on, Update, ev.Old, ev.Object, "", now)
	}
}

// resourceOf is the name under which plugins wait for changes of a resource.
func resourceOf(r schema.GroupResource) (Resource, bool) {
	switch r {
	case gr.PersistentVolumes:
		return PersistentVolume, true
	case gr.PersistentVolumeClaims:
		return VolumeClaim, true
	case gr.StorageClasses:
		return StorageClass, true
	case gr.CSINodes:
		return CSINode, true
	case gr.CSIDrivers:
		return CSIDriver, true
	case gr.CSIStorageCapacities:
		return CSIStorageCapacity, true
	case gr.VolumeAttachments:
		return VolumeAttachment, true
	case gr.ResourceClaims:
		return ResourceClaim, true
	case gr.ResourceSlices:
		return ResourceSlice, true
	case gr.DeviceClasses:
		return DeviceClass, true
	case taintRules():
		return DeviceTaintRule, true
	case schema.GroupResource{Group: "scheduling.k8s.io", Resource: "podgroups"}:
		return PodGroup, true
	}
	return "", false
}
