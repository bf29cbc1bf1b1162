package networkpolicy

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// resolver decides which Pod has an address, from the Pods of the API and from the attachments of the Pod network of this node. The network
// takes precedence: a Pod has its address before its status shows it, and may keep it after the Pod is deleted.
type resolver struct {
	*model
	node     string
	api      map[key]*corev1.Pod
	attached map[key][]attachment
	owner    map[netip.Addr]key
	known    map[key][]key // the Pods of each name in the model: the Pod of the API, and perhaps former ones of the same name
}

// attachment is a Pod that the network of this node has attached.
type attachment struct {
	uid   string
	addrs []netip.Addr
}

func newResolver(node string) *resolver {
	return &resolver{
		model: newModel(), node: node,
		api: map[key]*corev1.Pod{}, attached: map[key][]attachment{}, owner: map[netip.Addr]key{}, known: map[key][]key{},
	}
}

// setPod sets a Pod of the API; nil deletes it.
func (r *resolver) setPod(k key, p *corev1.Pod) {
	if r.api[k] == p {
		return
	}
	if p == nil {
		delete(r.api, k)
	} else {
		r.api[k] = p
	}
	r.resolve(k)
}

// attach records that a Pod of this node has addresses.
func (r *resolver) attach(k key, uid string, addrs []netip.Addr) {
	r.detach(addrs)
	r.attached[k] = append(r.attached[k], attachment{uid, addrs})
	for _, a := range addrs {
		r.owner[a] = k
	}
	r.resolve(k)
}

// detach records that addresses of this node are free.
func (r *resolver) detach(addrs []netip.Addr) {
	for _, a := range addrs {
		k, ok := r.owner[a]
		if !ok {
			continue
		}
		delete(r.owner, a)
		r.attached[k] = slices.DeleteFunc(r.attached[k], func(x attachment) bool { return slices.Contains(x.addrs, a) })
		if len(r.attached[k]) == 0 {
			delete(r.attached, k)
		}
		r.resolve(k)
	}
}

// resolve updates the Pods of a name in the model. Nearly always there is one. But a Pod may be deleted in the API, or
// replaced by another of its name, while it still has its address.
func (r *resolver) resolve(k key) {
	now := map[key]podFacts{}
	p := r.api[k]
	var facts podFacts
	exists := false
	if p != nil {
		if facts, exists = readPod(p, r.node); exists {
			now[k] = facts
		}
	}
	for _, a := range r.attached[k] {
		if exists && isSamePod(p, a.uid) {
			facts := now[k]
			if !facts.attached {
				facts.local, facts.attached, facts.addrs = true, true, nil
				facts.uid = cmp.Or(a.uid, facts.uid)
			}
			facts.addrs = append(facts.addrs, a.addrs...)
			now[k] = facts
			continue
		}
		former := key{k.namespace, k.name + " " + cmp.Or(a.uid, "unknown")}
		facts := now[former]
		facts.key, facts.uid, facts.local, facts.attached, facts.addrs = former, a.uid, true, true, append(facts.addrs, a.addrs...)
		now[former] = facts
	}
	for _, old := range r.known[k] {
		if _, stays := now[old]; !stays {
			r.model.setPod(podFacts{key: old}, false)
		}
	}
	delete(r.known, k)
	for id, facts := range now {
		r.model.setPod(facts, true)
		r.known[k] = append(r.known[k], id)
	}
}
