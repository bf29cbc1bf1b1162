package schedule

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	configv1 "k8s.io/kube-scheduler/config/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// Extender is a program elsewhere that has a say in decisions, and may bind pods. A verb that is empty is one it does not know.
type Extender struct {
	URL                               string
	Filter, Prioritize, Preempt, Bind string
	Weight                            int64
	// Names says that it knows the nodes and wants only their names, Ignorable that decisions are made without it if it
	// does not answer.
	Names, Ignorable bool
	// Managed are the resources it is asked about; if there are none it is asked about every pod.
	Managed sets.Set[string]
	// Post sends a request and returns the body of the answer.
	Post func(url string, body []byte) ([]byte, error)
}

// newExtenders reads the configuration.
func newExtenders(in []configv1.Extender, post func(*configv1.Extender, string, []byte) ([]byte, error)) ([]*Extender, error) {
	var out []*Extender
	for i := range in {
		e := &in[i]
		if post == nil {
			return nil, fmt.Errorf("extender %q: this scheduler has no way to ask extenders", e.URLPrefix)
		}
		managed := sets.New[string]()
		for _, r := range e.ManagedResources {
			managed.Insert(r.Name)
		}
		out = append(out, &Extender{
			URL: e.URLPrefix, Filter: e.FilterVerb, Prioritize: e.PrioritizeVerb, Preempt: e.PreemptVerb, Bind: e.BindVerb, Weight: e.Weight,
			Names: e.NodeCacheCapable, Ignorable: e.Ignorable, Managed: managed,
			Post: func(url string, body []byte) ([]byte, error) { return post(e, url, body) },
		})
	}
	return out, nil
}

// interested says that it is to be asked about a pod.
func (e *Extender) interested(pod *corev1.Pod) bool {
	if len(e.Managed) == 0 {
		return true
	}
	has := func(list corev1.ResourceList) bool {
		for name := range list {
			if e.Managed.Has(string(name)) {
				return true
			}
		}
		return false
	}
	return slices.ContainsFunc(slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers), func(c corev1.Container) bool {
		return has(c.Resources.Requests) || has(c.Resources.Limits)
	})
}

func (e *Extender) send(verb string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	answer, err := e.Post(strings.TrimRight(e.URL, "/")+"/"+verb, body)
	if err != nil {
		return err
	}
	return json.Unmarshal(answer, out)
}

// args are the pod and the nodes, in the form that it wants.
func (e *Extender) args(pod *corev1.Pod, nodes []*NodeInfo) *extenderv1.ExtenderArgs {
	args := &extenderv1.ExtenderArgs{Pod: pod}
	if e.Names {
		args.NodeNames = &[]string{}
		for _, n := range nodes {
			*args.NodeNames = append(*args.NodeNames, n.Name())
		}
		return args
	}
	args.Nodes = &corev1.NodeList{}
	for _, n := range nodes {
		args.Nodes.Items = append(args.Nodes.Items, *n.Node)
	}
	return args
}

// filter asks which nodes will do, and why others will not.
func (e *Extender) filter(pod *corev1.Pod, nodes []*NodeInfo) (fit []*NodeInfo, verdicts map[string]*Verdict, err error) {
	var result extenderv1.ExtenderFilterResult
	if err := e.send(e.Filter, e.args(pod, nodes), &result); err != nil {
		return nil, nil, err
	}
	if result.Error != "" {
		return nil, nil, errors.New(result.Error)
	}
	var names []string
	if e.Names && result.NodeNames != nil {
		names = *result.NodeNames
	} else if result.Nodes != nil {
		for i := range result.Nodes.Items {
			names = append(names, result.Nodes.Items[i].Name)
		}
	}
	for _, name := range names {
		i := slices.IndexFunc(nodes, func(n *NodeInfo) bool { return n.Name() == name })
		if i < 0 {
			return nil, nil, fmt.Errorf("extender %q claims a filtered node %q which is not found in the input node list", e.URL, name)
		}
		fit = append(fit, nodes[i])
	}
	verdicts = map[string]*Verdict{}
	for name, reason := range result.FailedNodes {
		verdicts[name] = No(reason)
	}
	for name, reason := range result.FailedAndUnresolvableNodes {
		verdicts[name] = NotEver(reason)
	}
	return fit, verdicts, nil
}

// extended says that extenders have a say about nodes, so that one that fits is not enough.
func (p *Profile) extended() bool {
	return slices.ContainsFunc(p.Extenders, func(e *Extender) bool { return e.Filter != "" || e.Prioritize != "" })
}

// askFilters lets extenders take nodes away from those that fit.
func (c *compiled) askFilters(pod *PodInfo, d *Decision) {
	for _, e := range c.profile.Extenders {
		if len(c.fit) == 0 {
			return
		}
		if e.Filter == "" || !e.interested(pod.Pod) {
			continue
		}
		fit, verdicts, err := e.filter(pod.Pod, c.fit)
		if err != nil {
			if e.Ignorable {
				continue
			}
			d.Err = err
			return
		}
		for _, name := range slices.Sorted(maps.Keys(verdicts)) {
			d.Verdicts = append(d.Verdicts, NodeVerdict{name, anyPlugin, verdicts[name]})
		}
		if len(fit) < len(c.fit) {
			d.blame(anyPlugin, &Verdict{})
		}
		c.fit = fit
	}
}

// askPriorities adds the scores of extenders. What goes wrong there does not count.
func (c *compiled) askPriorities(pod *PodInfo) {
	var mu sync.Mutex // guards the totals
	var wg sync.WaitGroup
	for _, e := range c.profile.Extenders {
		if e.Prioritize == "" || !e.interested(pod.Pod) {
			continue
		}
		wg.Go(func() {
			var list extenderv1.HostPriorityList
			if err := e.send(e.Prioritize, e.args(pod.Pod, c.fit), &list); err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, h := range list {
				if i := slices.IndexFunc(c.fit, func(n *NodeInfo) bool { return n.Name() == h.Host }); i >= 0 {
					c.totals[i] += h.Score * e.Weight * (MaxScore / extenderv1.MaxExtenderPriority)
				}
			}
		})
	}
	wg.Wait()
}

// binder is the extender that binds a pod, or nil.
func (p *Profile) binder(pod *corev1.Pod) *Extender {
	i := slices.IndexFunc(p.Extenders, func(e *Extender) bool { return e.Bind != "" && e.interested(pod) })
	if i < 0 {
		return nil
	}
	return p.Extenders[i]
}

func (e *Extender) bind(pod *corev1.Pod, node string) error {
	var result extenderv1.ExtenderBindingResult
	args := &extenderv1.ExtenderBindingArgs{PodName: pod.Name, PodNamespace: pod.Namespace, PodUID: pod.UID, Node: node}
	if err := e.send(e.Bind, args, &result); err != nil {
		return err
	}
	if result.Error != "" {
		return errors.New(result.Error)
	}
	return nil
}

// askExtenders lets extenders take candidates for a preemption away, or change their victims.
func (p *Profile) askExtenders(a Attempt, all []candidate) ([]candidate, error) {
	for _, e := range p.Extenders {
		if e.Preempt == "" || !e.interested(a.Pod.Pod) {
			continue
		}
		next, err := e.preempt(a, all)
		if err != nil {
			if e.Ignorable {
				continue
			}
			return nil, err
		}
		if all = next; len(all) == 0 {
			break
		}
	}
	return all, nil
}

func (e *Extender) preempt(a Attempt, all []candidate) ([]candidate, error) {
	args := &extenderv1.ExtenderPreemptionArgs{Pod: a.Pod.Pod}
	if e.Names {
		args.NodeNameToMetaVictims = map[string]*extenderv1.MetaVictims{}
	} else {
		args.NodeNameToVictims = map[string]*extenderv1.Victims{}
	}
	for _, c := range all {
		full := &extenderv1.Victims{NumPDBViolations: int64(c.violations)}
		meta := &extenderv1.MetaVictims{NumPDBViolations: int64(c.violations)}
		for _, v := range c.victims {
			full.Pods = append(full.Pods, v.Pod)
			meta.Pods = append(meta.Pods, &extenderv1.MetaPod{UID: string(v.Pod.UID)})
		}
		if e.Names {
			args.NodeNameToMetaVictims[c.node] = meta
		} else {
			args.NodeNameToVictims[c.node] = full
		}
	}
	var result extenderv1.ExtenderPreemptionResult
	if err := e.send(e.Preempt, args, &result); err != nil {
		return nil, err
	}
	var out []candidate
	for _, name := range slices.Sorted(maps.Keys(result.NodeNameToMetaVictims)) {
		c, err := e.candidate(a.Snapshot, name, result.NodeNameToMetaVictims[name])
		if err != nil {
			return nil, err
		}
		if len(c.victims) == 0 {
			if e.Ignorable {
				continue
			}
			return nil, fmt.Errorf("expected at least one victim pod on node %q", name)
		}
		out = append(out, c)
	}
	return out, nil
}

// candidate is what it answered about a node, with the pods that it named.
func (e *Extender) candidate(s *Snapshot, node string, meta *extenderv1.MetaVictims) (c candidate, err error) {
	n := s.Node(node)
	if n == nil {
		return c, fmt.Errorf("nodeinfo not found for node name %q", node)
	}
	c = candidate{node: node}
	if meta == nil {
		return c, nil
	}
	c.violations = int(meta.NumPDBViolations)
	for _, m := range meta.Pods {
		i := slices.IndexFunc(n.Pods, func(p *PodInfo) bool { return string(p.Pod.UID) == m.UID })
		if i < 0 {
			return c, fmt.Errorf("extender: %v claims to preempt pod (UID: %v) on node: %v, but the pod is not found on that node", e.URL, m, node)
		}
		c.victims = append(c.victims, n.Pods[i])
	}
	slices.SortStableFunc(c.victims, byImportance)
	return c, nil
}
