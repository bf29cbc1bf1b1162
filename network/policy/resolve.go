package policy

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// resolver finds out which address is whose, from what the API says of all Pods and what the network of this node says of its
// own. The network knows first and best: a Pod has its address before the API says so, and lets go of it in its own time.
type resolver struct {
	*world
	node     string
	api      map[key]*corev1.Pod
	attached map[key][]attachment
	owner    map[netip.Addr]key
	told     map[key][]key // what the world was told of a name: the Pod, and perhaps others of the same name
}

// attachment is a Pod that the network of this node has connected.
type attachment struct {
	uid   string
	addrs []netip.Addr
}

func newResolver(node string) *resolver {
	return &resolver{
		world: newWorld(), node: node,
		api: map[key]*corev1.Pod{}, attached: map[key][]attachment{}, owner: map[netip.Addr]key{}, told: map[key][]key{},
	}
}

// setPod notes what the API says of a Pod; nil says that it has none of this name.
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

// attach notes that a Pod of this node has addresses.
func (r *resolver) attach(k key, uid string, addrs []netip.Addr) {
	r.detach(addrs)
	r.attached[k] = append(r.attached[k], attachment{uid, addrs})
	for _, a := range addrs {
		r.owner[a] = k
	}
	r.resolve(k)
}

// detach notes that addresses of this node are nobody's.
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

// resolve tells the world about the Pods of a name. Nearly always that is one. But a Pod may be gone from the API, or be
// replaced there by another of its name, while it still has its address.
func (r *resolver) resolve(k key) {
	now := map[key]podFacts{}
	p := r.api[k]
	var facts podFacts
	counts := false
	if p != nil {
		if facts, counts = readPod(p, r.node); counts {
			now[k] = facts
		}
	}
	for _, a := range r.attached[k] {
		if counts && is(p, a.uid) {
			facts := now[k]
			if !facts.attached {
				facts.local, facts.attached, facts.addrs = true, true, nil
				facts.uid = cmp.Or(a.uid, facts.uid)
			}
			facts.addrs = append(facts.addrs, a.addrs...)
			now[k] = facts
			continue
		}
		stranger := key{k.namespace, k.name + " " + cmp.Or(a.uid, "unknown")}
		facts := now[stranger]
		facts.key, facts.uid, facts.local, facts.attached, facts.addrs = stranger, a.uid, true, true, append(facts.addrs, a.addrs...)
		now[stranger] = facts
	}
	for _, old := range r.told[k] {
		if _, still := now[old]; !still {
			r.world.setPod(podFacts{key: old}, false)
		}
	}
	delete(r.told, k)
	for id, facts := range now {
		r.world.setPod(facts, true)
		r.told[k] = append(r.told[k], id)
	}
}
