package schedule

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/schedule/framework"
)

// preparedPods is a cache of prepared Pods for Pods that are equal to them.
type preparedPods struct {
	profiles map[string]map[string]*preparedPod // by profile, then signature
	count    int
}

// changesBetween returns the Pods that were added or removed between two generations, or false if these are no longer
// known.
type changesBetween func(from, to uint64) ([]framework.PodChange, bool)

// maxPreparedPods bounds the memory of the cache: each prepared Pod has a result for every node.
const maxPreparedPods = 64

func newPreparedPods() *preparedPods {
	return &preparedPods{profiles: map[string]map[string]*preparedPod{}}
}

// decide decides like Decide, but uses the cached results of equal Pods. changed returns the Pods that were added or
// removed meanwhile.
func (k *preparedPods) decide(s *framework.Snapshot, t *attempt, seed framework.Seed, changed changesBetween) framework.Decision {
	profile := t.profile
	signature := t.SignatureOf(t.info)
	if signature == "" {
		t.prepared = preparePod(s, t.info, profile)
		t.prepared.deadline = t.deadline()
		return t.prepared.decide(s, t.info, seed, false)
	}
	c := k.profiles[profile.Name][signature]
	if c != nil && !c.bringUpToDate(s, t.info, changed) {
		delete(k.profiles[profile.Name], signature)
		k.count--
		c = nil
	}
	if c == nil {
		c = preparePod(s, t.info, profile)
		if c.reusable && c.rejection == nil {
			k.store(profile.Name, signature, c)
		}
	}
	t.prepared, c.deadline = c, t.deadline()
	return c.decideCached(s, t.info, seed)
}

// decideCached decides, or returns the last failure if an equal Pod had no feasible node in the same snapshot. When a
// cluster is full, one event wakes all unschedulable Pods; then only the first of many equal ones has to examine all
// nodes.
func (c *preparedPod) decideCached(s *framework.Snapshot, pod *framework.PodInfo, seed framework.Seed) framework.Decision {
	if c.lastFailureAt == s && pod.Pod.Status.NominatedNodeName == "" {
		d := c.lastFailure
		d.Seed = seed
		return d
	}
	d := c.decide(s, pod, seed, false)
	if c.cached && d.Node == "" && d.Err == nil && !c.profile.HasNodeExtenders() {
		c.lastFailure, c.lastFailureAt = d, s
	}
	return d
}

func (k *preparedPods) store(profile, signature string, c *preparedPod) {
	if k.count >= maxPreparedPods {
		k.evictOne()
	}
	if k.profiles[profile] == nil {
		k.profiles[profile] = map[string]*preparedPod{}
	}
	k.profiles[profile][signature] = c
	k.count++
	c.cached = true
}

// evictOne removes a random entry. If Pods of many templates alternate, removing the oldest would remove each entry
// just before it is needed.
func (k *preparedPods) evictOne() {
	for _, bySignature := range k.profiles {
		for signature := range bySignature {
			delete(bySignature, signature)
			k.count--
			return
		}
	}
}

// bringUpToDate updates the prepared plugins to a snapshot. It returns false if they have to be prepared again.
func (c *preparedPod) bringUpToDate(s *framework.Snapshot, pod *framework.PodInfo, changed changesBetween) bool {
	if c.layout != s.Layout {
		return false
	}
	if c.imageGeneration != s.ImageGeneration {
		c.refreshImageStates(s, pod)
	}
	if c.podGeneration == s.PodGeneration {
		return true
	}
	seq := c.podGeneration
	c.podGeneration = s.PodGeneration
	updatable := false
	for i := range c.plugins {
		updatable = updatable || c.plugins[i].Reuse == framework.ReuseWhileUpdated
	}
	if !updatable {
		return true
	}
	list, ok := changed(seq, s.PodGeneration)
	if !ok {
		return false
	}
	for _, ch := range list {
		if ch.Node.Node == nil { // the node was removed; when it is added again, the layout changes
			continue
		}
		for i := range c.plugins {
			if p := &c.plugins[i]; p.Reuse == framework.ReuseWhileUpdated && !p.Update(ch.Node, ch.Pod, ch.By) {
				return false
			}
		}
	}
	return true
}

// refreshImageStates prepares only the plugins again that use image states. While many Pods are started, images are
// pulled to nodes all the time, and this avoids preparing all plugins again.
func (c *preparedPod) refreshImageStates(s *framework.Snapshot, pod *framework.PodInfo) {
	c.imageGeneration = s.ImageGeneration
	for i := range c.plugins {
		if p := &c.plugins[i]; p.UsesImageStates {
			p.Prepared = p.Prepare(s, pod)
		}
	}
	for i := range c.results {
		c.results[i].scored, c.results[i].fixedScore = false, 0
	}
}

// invalidatesPreparedPods reports whether a change of an object invalidates prepared Pods. Few changes do: only Pods of
// one template share a prepared Pod, and none is cached for Pods whose owner was not found.
func invalidatesPreparedPods(r schema.GroupResource, was, is kind.Object) bool {
	switch r {
	case gr.Services:
		if was == nil || is == nil {
			return true
		}
		return !maps.Equal(was.(*corev1.Service).Spec.Selector, is.(*corev1.Service).Spec.Selector)
	case gr.DeviceClasses: // they provide extended resources
		return true
	case gr.Namespaces:
		if was == nil || is == nil {
			return true
		}
		return !maps.Equal(was.GetLabels(), is.GetLabels())
	case gr.ReplicationControllers:
		return was != nil && is != nil &&
			!maps.Equal(was.(*corev1.ReplicationController).Spec.Selector, is.(*corev1.ReplicationController).Spec.Selector)
	case gr.ReplicaSets:
		return was != nil && is != nil &&
			!equality.Semantic.DeepEqual(was.(*appsv1.ReplicaSet).Spec.Selector, is.(*appsv1.ReplicaSet).Spec.Selector)
	case gr.StatefulSets:
		return was != nil && is != nil &&
			!equality.Semantic.DeepEqual(was.(*appsv1.StatefulSet).Spec.Selector, is.(*appsv1.StatefulSet).Spec.Selector)
	}
	// Pods with claims, volumes or devices are not cached.
	return false
}
