package schedule

import (
	"maps"
	"slices"
	"sync"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"proa.dev/schedule/framework"
	"proa.dev/schedule/podqueue"
)

// filterByExtenders removes the nodes from the feasible ones that an extender rejects.
func (c *preparedPod) filterByExtenders(pod *framework.PodInfo, d *framework.Decision) {
	for _, e := range c.profile.Extenders {
		if len(c.feasible) == 0 {
			return
		}
		if e.FilterVerb == "" || !e.IsInterested(pod.Pod) {
			continue
		}
		fit, rejections, err := e.FilterNodes(pod.Pod, c.feasible)
		if err != nil {
			if e.Ignorable {
				continue
			}
			d.Err = err
			return
		}
		for _, name := range slices.Sorted(maps.Keys(rejections)) {
			d.Rejections = append(d.Rejections,
				framework.NodeRejection{Node: name, Plugin: podqueue.ExtenderPlugin, Rejection: rejections[name]})
		}
		if len(fit) < len(c.feasible) {
			d.AddRejectingPlugin(podqueue.ExtenderPlugin, &framework.Rejection{})
		}
		c.feasible = fit
	}
}

// scoreByExtenders adds the scores of extenders. Errors of extenders are ignored.
func (c *preparedPod) scoreByExtenders(pod *framework.PodInfo) {
	var mu sync.Mutex // guards the totals
	var wg sync.WaitGroup
	for _, e := range c.profile.Extenders {
		if e.PrioritizeVerb == "" || !e.IsInterested(pod.Pod) {
			continue
		}
		wg.Go(func() {
			var list extenderv1.HostPriorityList
			if err := e.Call(e.PrioritizeVerb, e.NodeArgs(pod.Pod, c.feasible), &list); err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, h := range list {
				if i := slices.IndexFunc(c.feasible, func(n *framework.NodeInfo) bool { return n.Name() == h.Host }); i >= 0 {
					c.totals[i] += h.Score * e.Weight * (framework.MaxScore / extenderv1.MaxExtenderPriority)
				}
			}
		})
	}
	wg.Wait()
}
