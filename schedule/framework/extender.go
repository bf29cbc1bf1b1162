package framework

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	configv1 "k8s.io/kube-scheduler/config/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// Extender is a scheduler extender: an HTTP service that filters and scores nodes, selects preemption victims or binds
// Pods. A verb that is empty is not supported by the extender.
type Extender struct {
	URL                                               string
	FilterVerb, PrioritizeVerb, PreemptVerb, BindVerb string
	Weight                                            int64
	// NodeCacheCapable says that the extender gets only the names of nodes, Ignorable that scheduling continues without
	// it if it fails.
	NodeCacheCapable, Ignorable bool
	// ManagedResources limits the extender to Pods that request one of these resources; empty for all Pods.
	ManagedResources sets.Set[string]
	// Post sends a request and returns the body of the response.
	Post func(url string, body []byte) ([]byte, error)
}

// NewExtenders returns the extenders of a configuration. It is an error if there are any and post is nil.
func NewExtenders(in []configv1.Extender, post func(*configv1.Extender, string, []byte) ([]byte, error)) ([]*Extender, error) {
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
			URL: e.URLPrefix, FilterVerb: e.FilterVerb, PrioritizeVerb: e.PrioritizeVerb, PreemptVerb: e.PreemptVerb, BindVerb: e.BindVerb,
			Weight:           e.Weight,
			NodeCacheCapable: e.NodeCacheCapable, Ignorable: e.Ignorable, ManagedResources: managed,
			Post: func(url string, body []byte) ([]byte, error) { return post(e, url, body) },
		})
	}
	return out, nil
}

// IsInterested reports whether the extender is called for a Pod.
func (e *Extender) IsInterested(pod *corev1.Pod) bool {
	if len(e.ManagedResources) == 0 {
		return true
	}
	has := func(list corev1.ResourceList) bool {
		for name := range list {
			if e.ManagedResources.Has(string(name)) {
				return true
			}
		}
		return false
	}
	return slices.ContainsFunc(slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers), func(c corev1.Container) bool {
		return has(c.Resources.Requests) || has(c.Resources.Limits)
	})
}

// Call calls a verb of the extender with in as JSON, and decodes the response into out.
func (e *Extender) Call(verb string, in, out any) error {
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

// NodeArgs returns the arguments for filter and prioritize: the Pod and the nodes or their names.
func (e *Extender) NodeArgs(pod *corev1.Pod, nodes []*NodeInfo) *extenderv1.ExtenderArgs {
	args := &extenderv1.ExtenderArgs{Pod: pod}
	if e.NodeCacheCapable {
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

// FilterNodes calls the filter verb, and returns the nodes that passed and the rejections of others by node name.
func (e *Extender) FilterNodes(pod *corev1.Pod, nodes []*NodeInfo) (fit []*NodeInfo, rejections map[string]*Rejection, err error) {
	var result extenderv1.ExtenderFilterResult
	if err := e.Call(e.FilterVerb, e.NodeArgs(pod, nodes), &result); err != nil {
		return nil, nil, err
	}
	if result.Error != "" {
		return nil, nil, errors.New(result.Error)
	}
	var names []string
	if e.NodeCacheCapable && result.NodeNames != nil {
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
	rejections = map[string]*Rejection{}
	for name, reason := range result.FailedNodes {
		rejections[name] = Unschedulable(reason)
	}
	for name, reason := range result.FailedAndUnresolvableNodes {
		rejections[name] = Unresolvable(reason)
	}
	return fit, rejections, nil
}

// BindPod lets the extender bind a Pod to a node.
func (e *Extender) BindPod(pod *corev1.Pod, node string) error {
	var result extenderv1.ExtenderBindingResult
	args := &extenderv1.ExtenderBindingArgs{PodName: pod.Name, PodNamespace: pod.Namespace, PodUID: pod.UID, Node: node}
	if err := e.Call(e.BindVerb, args, &result); err != nil {
		return err
	}
	if result.Error != "" {
		return errors.New(result.Error)
	}
	return nil
}

func (e *Extender) preemptCandidates(a PostFilterInput, all []PreemptionCandidate) ([]PreemptionCandidate, error) {
	args := &extenderv1.ExtenderPreemptionArgs{Pod: a.Pod.Pod}
	if e.NodeCacheCapable {
		args.NodeNameToMetaVictims = map[string]*extenderv1.MetaVictims{}
	} else {
		args.NodeNameToVictims = map[string]*extenderv1.Victims{}
	}
	for _, c := range all {
		full := &extenderv1.Victims{NumPDBViolations: int64(c.BudgetViolations)}
		meta := &extenderv1.MetaVictims{NumPDBViolations: int64(c.BudgetViolations)}
		for _, v := range c.Victims {
			full.Pods = append(full.Pods, v.Pod)
			meta.Pods = append(meta.Pods, &extenderv1.MetaPod{UID: string(v.Pod.UID)})
		}
		if e.NodeCacheCapable {
			args.NodeNameToMetaVictims[c.Node] = meta
		} else {
			args.NodeNameToVictims[c.Node] = full
		}
	}
	var result extenderv1.ExtenderPreemptionResult
	if err := e.Call(e.PreemptVerb, args, &result); err != nil {
		return nil, err
	}
	var out []PreemptionCandidate
	for _, name := range slices.Sorted(maps.Keys(result.NodeNameToMetaVictims)) {
		c, err := e.candidate(a.Snapshot, name, result.NodeNameToMetaVictims[name])
		if err != nil {
			return nil, err
		}
		if len(c.Victims) == 0 {
			if e.Ignorable {
				continue
			}
			return nil, fmt.Errorf("expected at least one victim pod on node %q", name)
		}
		out = append(out, c)
	}
	return out, nil
}

// candidate returns the candidate that the extender has returned for a node, with its victims looked up by UID.
func (e *Extender) candidate(s *Snapshot, node string, meta *extenderv1.MetaVictims) (c PreemptionCandidate, err error) {
	n := s.Node(node)
	if n == nil {
		return c, fmt.Errorf("nodeinfo not found for node name %q", node)
	}
	c = PreemptionCandidate{Node: node}
	if meta == nil {
		return c, nil
	}
	c.BudgetViolations = int(meta.NumPDBViolations)
	for _, m := range meta.Pods {
		i := slices.IndexFunc(n.Pods, func(p *PodInfo) bool { return string(p.Pod.UID) == m.UID })
		if i < 0 {
			return c, fmt.Errorf("extender: %v claims to preempt pod (UID: %v) on node: %v, but the pod is not found on that node", e.URL, m, node)
		}
		c.Victims = append(c.Victims, n.Pods[i])
	}
	slices.SortStableFunc(c.Victims, CompareImportance)
	return c, nil
}
