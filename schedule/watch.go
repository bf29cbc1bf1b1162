package schedule

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/kinds/lib/gr"
	"proa.dev/schedule/framework"
	"proa.dev/schedule/podqueue"
)

// load adds all nodes and Pods before the first Pod is scheduled, so that no decision is made with an incomplete state.
func (s *scheduler) load() {
	for o := range s.views[gr.Nodes].List("") {
		s.onNode(client.Event{Object: o})
	}
	for o := range s.views[gr.Pods].List("") {
		s.onPod(client.Event{Object: o})
	}
}

// watch calls handle for the changes of a resource. After a gap it removes the objects that no longer exist.
func (s *scheduler) watch(ctx context.Context, r schema.GroupResource, handle func(client.Event)) {
	for ev := range s.views[r].Events(ctx) {
		if ev.Gap {
			s.removeMissing(r)
			continue
		}
		handle(ev)
	}
}

// removeMissing removes the nodes and Pods that are no longer in the view.
func (s *scheduler) removeMissing(r schema.GroupResource) {
	there := map[types.UID]bool{}
	names := map[string]bool{}
	for o := range s.views[r].List("") {
		there[o.GetUID()], names[o.GetName()] = true, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.wake.Send()
	switch r {
	case gr.Nodes:
		for n := range s.state.Snapshot().All() {
			if !names[n.Name()] {
				s.removeNode(n.Node)
			}
		}
	case gr.Pods:
		for _, p := range s.state.Pods() {
			if !there[p.Pod.UID] {
				s.forgetPod(p.Pod)
			}
		}
		for e := range s.queue.All() {
			if !there[e.Pod.Pod.UID] {
				s.forgetPod(e.Pod.Pod)
			}
		}
	default:
		s.state.InvalidateLayout()
	}
}

func (s *scheduler) onNode(ev client.Event) {
	node := ev.Object.(*corev1.Node)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.wake.Send()
	now := time.Now()
	if ev.Deleted {
		s.removeNode(node)
		return
	}
	// The previous state is the one of the scheduler, which after a gap is older than that of the event.
	was := s.state.Node(node.Name)
	if was == nil {
		s.state.SetNode(node)
		s.nominated.publish(s.state, node.Name)
		s.queue.HandleEvent(podqueue.ClusterEvent{On: framework.NodeResource, Do: framework.Add, New: node}, now)
		return
	}
	if framework.AffectsScheduling(was, node) {
		s.state.SetNode(node)
	} else {
		s.state.ReplaceNode(node)
	}
	if do := framework.ClassifyNodeUpdate(was, node); do != 0 {
		s.queue.HandleEvent(podqueue.ClusterEvent{On: framework.NodeResource, Do: do, Old: was, New: node}, now)
	}
}

func (s *scheduler) removeNode(node *corev1.Node) {
	s.queue.HandleEvent(podqueue.ClusterEvent{On: framework.NodeResource, Do: framework.Delete, Old: node}, time.Now())
	s.state.RemoveNode(node.Name)
}

// onPod handles the changes of Pods. A Pod that has ended takes no resources, so it is treated like a deleted one.
func (s *scheduler) onPod(ev client.Event) {
	pod := ev.Object.(*corev1.Pod)
	was, _ := ev.Old.(*corev1.Pod)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.wake.Send()
	switch {
	case ev.Deleted || framework.HasEnded(pod):
		s.forgetPod(pod)
	case pod.Spec.NodeName != "":
		s.addBoundPod(pod)
	case s.isResponsibleFor(pod):
		s.enqueuePod(was, pod)
	}
}

// forgetPod removes a Pod that was deleted or has ended.
func (s *scheduler) forgetPod(pod *corev1.Pod) {
	now := time.Now()
	uid := pod.UID
	s.queue.Remove(uid)
	s.records.Forget(uid, "the Pod was deleted, or has ended")
	nominee := s.nominated.nodeOf(uid)
	s.nominated.set(s.state, &framework.PodInfo{Pod: pod}, "")
	if p := s.assumed[uid]; p != nil && pod.Spec.NodeName == "" {
		// The binding of the Pod will fail; its resources are free now.
		delete(s.assumed, uid)
		s.state.RemovePod(uid)
		s.queue.HandleEvent(podqueue.ClusterEvent{On: framework.AssignedPod, Do: framework.Delete, Old: podqueue.WithNode(p.Pod, "?"),
			Except: uid}, now)
		return
	}
	delete(s.assumed, uid)
	if pod.Spec.NodeName != "" {
		if _, on := s.state.NodeOf(uid); on {
			s.state.RemovePod(uid)
			s.queue.HandleEvent(podqueue.ClusterEvent{On: framework.AssignedPod, Do: framework.Delete, Old: pod, Except: uid}, now)
		}
		return
	}
	if nominee != "" {
		s.queue.HandleRemovedNomination(pod, nominee, now)
	}
}

// addBoundPod adds a Pod that has a node.
func (s *scheduler) addBoundPod(pod *corev1.Pod) {
	now := time.Now()
	before := s.state.Pod(pod.UID)
	p := s.state.UpdatedPodInfo(pod)
	s.state.AddPod(p, pod.Spec.NodeName)
	if before == nil || s.assumed[pod.UID] != nil {
		if before == nil {
			s.records.Forget(pod.UID, "somebody else has bound the Pod")
		}
		s.queue.Remove(pod.UID)
		delete(s.assumed, pod.UID)
		s.nominated.set(s.state, p, "")
		s.queue.HandleEvent(podqueue.ClusterEvent{On: framework.AssignedPod, Do: framework.Add, New: pod}, now)
		return
	}
	if do := framework.ClassifyPodUpdate(before, p); s.queue.IsInterested(framework.AssignedPod, do) {
		s.queue.HandleEvent(podqueue.ClusterEvent{On: framework.AssignedPod, Do: do, Old: before.Pod, New: pod}, now)
	}
}

// enqueuePod adds a Pod without node to the queue, unless it is assumed on a node already.
func (s *scheduler) enqueuePod(was, pod *corev1.Pod) {
	now := time.Now()
	if a := s.assumed[pod.UID]; a != nil {
		if pod.DeletionTimestamp != nil && a.Pod.DeletionTimestamp == nil {
			s.forgetPod(pod)
		}
		return
	}
	if e := s.queue.Get(pod.UID); e != nil && e.Pod.Pod.ResourceVersion == pod.ResourceVersion {
		return
	}
	p := framework.NewPodInfo(pod)
	isNew := s.queue.Get(pod.UID) == nil
	if s.queue.Add(p, now); isNew {
		s.records.Queued(pod, now, gateDetail(s.queue.Get(pod.UID)))
	}
	if was == nil && s.queue.IsInterested(framework.UnscheduledPod, framework.Add) {
		s.queue.HandleEvent(podqueue.ClusterEvent{On: framework.UnscheduledPod, Do: framework.Add, New: pod, Except: pod.UID}, now)
	}
	node, old := pod.Status.NominatedNodeName, s.nominated.nodeOf(pod.UID)
	if node == "" && (was == nil || was.Status.NominatedNodeName == "") {
		node = old // the nomination may not be written yet
	}
	s.nominated.set(s.state, p, node)
	if old != "" && old != node { // other Pods were filtered as if it were on the old node
		s.queue.HandleRemovedNomination(pod, old, now)
	}
}

// onOtherResource handles the changes of resources that only plugins read.
func (s *scheduler) onOtherResource(r schema.GroupResource, ev client.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.wake.Send()
	was, is := ev.Old, ev.Object
	if ev.Deleted {
		was, is = ev.Object, nil
	}
	if invalidatesPreparedPods(r, was, is) {
		s.state.InvalidateLayout()
	}
	on, watched := framework.ResourceFor(r)
	if !watched {
		return
	}
	now := time.Now()
	switch {
	case ev.Deleted:
		s.queue.HandleEvent(podqueue.ClusterEvent{On: on, Do: framework.Delete, Old: ev.Object}, now)
	case ev.Old == nil:
		s.queue.HandleEvent(podqueue.ClusterEvent{On: on, Do: framework.Add, New: ev.Object}, now)
	default:
		s.queue.HandleEvent(podqueue.ClusterEvent{On: on, Do: framework.Update, Old: ev.Old, New: ev.Object}, now)
	}
}
