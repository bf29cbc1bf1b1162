package networkpolicy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// model is a model of everything that policies depend on, with the plan of sets and chains that follows from it. Its
// methods take one change at a time and update only the parts of the plan that depend on it. It is independent of the
// kernel.
type model struct {
	plan
	policies     map[string]map[key]*policy // by namespace
	pods         map[key]*pod
	podsOf       map[string]map[*pod]bool // by namespace
	namespaces   map[string]labels.Set
	reach        map[string]map[*set]bool // for each namespace with Pods, the wide sets that select it
	claims       map[netip.Addr][]*pod    // the Pods that claim an address; the owner first
	formerOwners map[netip.Addr]string    // the UID of the owner at the last call of takeReassigned, for addresses with changes since then
}

// pod is a Pod with its part in the plan.
type pod struct {
	podFacts
	in              map[*set][]element // its elements in the sets of peers
	isolationChains [2]string          // its isolation chains; "" for none
	enforced        []netip.Addr       // the addresses for which the isolation chains are in force
}

func newModel() *model {
	return &model{
		plan: newPlan(), policies: map[string]map[key]*policy{}, pods: map[key]*pod{}, podsOf: map[string]map[*pod]bool{},
		namespaces: map[string]labels.Set{}, reach: map[string]map[*set]bool{}, claims: map[netip.Addr][]*pod{},
		formerOwners: map[netip.Addr]string{},
	}
}

// setNamespace sets the labels of a namespace; nil deletes the namespace.
func (w *model) setNamespace(name string, set labels.Set) {
	if set == nil {
		delete(w.namespaces, name)
	} else {
		w.namespaces[name] = set
	}
	before := w.reach[name]
	delete(w.reach, name)
	if before == nil || maps.Equal(before, w.wideSets(name)) {
		return
	}
	for p := range w.podsOf[name] {
		w.updateSets(p)
	}
}

// wideSets returns the sets of peers with a namespace selector that selects a namespace.
func (w *model) wideSets(namespace string) map[*set]bool {
	out := w.reach[namespace]
	if out == nil {
		out = map[*set]bool{}
		for s := range w.wide {
			if w.reaches(s.peer, namespace) {
				out[s] = true
			}
		}
		w.reach[namespace] = out
	}
	return out
}

// reaches reports whether a peer selects Pods of a namespace. A namespace that is not known yet is selected by empty selectors only.
func (w *model) reaches(p peer, namespace string) bool {
	if p.namespaces == nil {
		return p.namespace == namespace
	}
	set, ok := w.namespaces[namespace]
	return p.namespaces.Empty() || ok && p.namespaces.Matches(set)
}

// setPolicy sets a policy; nil deletes it.
func (w *model) setPolicy(k key, p *policy) {
	of := w.policies[k.namespace]
	if of == nil {
		of = map[key]*policy{}
		w.policies[k.namespace] = of
	}
	if p == nil {
		delete(of, k)
	} else {
		of[k] = p
	}
	if len(of) == 0 {
		delete(w.policies, k.namespace)
	}
	for _, d := range directions() {
		if name := policyChain(d, k); p != nil && w.chains[name] != nil {
			w.rewrite(name, w.linesOf(d, p))
		}
	}
	for q := range w.podsOf[k.namespace] {
		w.isolate(q)
	}
}

// setPod sets a Pod. With exists false it deletes the Pod.
func (w *model) setPod(facts podFacts, exists bool) {
	p := w.pods[facts.key]
	if p == nil {
		if !exists {
			return
		}
		p = &pod{in: map[*set][]element{}}
	}
	others := w.claim(p, facts, exists)
	if exists && p.key == (key{}) {
		p.key = facts.key
		w.pods[p.key] = p
		if w.podsOf[p.namespace] == nil {
			w.podsOf[p.namespace] = map[*pod]bool{}
		}
		w.podsOf[p.namespace][p] = true
	}
	// Former owners of an address are withdrawn first.
	for _, o := range append(others, p) {
		w.withdraw(o)
	}
	if exists {
		p.podFacts = facts
	} else {
		delete(w.pods, p.key)
		delete(w.podsOf[p.namespace], p)
		if len(w.podsOf[p.namespace]) == 0 {
			delete(w.podsOf, p.namespace)
			delete(w.reach, p.namespace)
		}
		p.local, p.addrs = false, nil
	}
	for _, o := range append(others, p) {
		if w.pods[o.key] == o {
			w.updateSets(o)
		}
		w.isolate(o)
	}
}

// claim records the addresses that a Pod claims, and returns the other Pods that claim or claimed one of them.
func (w *model) claim(p *pod, facts podFacts, exists bool) (others []*pod) {
	touched := slices.Concat(p.addrs, facts.addrs)
	for _, a := range touched {
		if list := w.claims[a]; len(list) > 0 {
			if _, known := w.formerOwners[a]; !known {
				w.formerOwners[a] = list[0].uid
			}
		}
		w.claims[a] = slices.DeleteFunc(w.claims[a], func(o *pod) bool { return o == p })
	}
	if exists {
		for _, a := range facts.addrs {
			list := w.claims[a]
			if slices.Contains(list, p) {
				continue
			}
			i := slices.IndexFunc(list, func(o *pod) bool { return o.yieldsTo(&facts) })
			if i < 0 {
				i = len(list)
			}
			w.claims[a] = slices.Insert(list, i, p)
		}
	}
	for _, a := range touched {
		list := w.claims[a]
		for _, o := range list {
			if o != p && !slices.Contains(others, o) {
				others = append(others, o)
			}
		}
		if len(list) == 0 {
			delete(w.claims, a)
		}
	}
	return others
}

// takeReassigned returns the addresses whose owner has changed since the last call.
func (w *model) takeReassigned() map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for a, former := range w.formerOwners {
		if list := w.claims[a]; len(list) == 0 || list[0].uid != former {
			out[a] = true
		}
	}
	clear(w.formerOwners)
	return out
}

// ownedAddresses returns the addresses that a Pod claims and owns.
func (w *model) ownedAddresses(p *pod) (out []netip.Addr) {
	for _, a := range p.addrs {
		if list := w.claims[a]; len(list) > 0 && list[0] == p && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// withdraw removes the addresses of a Pod from all sets.
func (w *model) withdraw(p *pod) {
	for s, list := range p.in {
		for _, e := range list {
			w.remove(s, e)
		}
	}
	clear(p.in)
	w.enforce(p, nil)
}

// updateSets updates the membership of a Pod in the sets of peers.
func (w *model) updateSets(p *pod) {
	for s := range p.in {
		if w.sets[s.name] != s || !w.isMember(p, s) {
			for _, e := range p.in[s] {
				w.remove(s, e)
			}
			delete(p.in, s)
		}
	}
	for s := range w.near[p.namespace] {
		w.join(p, s)
	}
	for s := range w.wideSets(p.namespace) {
		if w.wide[s] {
			w.join(p, s)
		} else {
			delete(w.wideSets(p.namespace), s) // it is not in use any more
		}
	}
	for _, n := range p.ports {
		if s := w.sets[namedSet(n.protocol, n.name)]; s != nil {
			w.join(p, s)
		}
	}
}

// isMember reports whether a Pod belongs into a set of peers.
func (w *model) isMember(p *pod, s *set) bool {
	if s.named != nil {
		return slices.ContainsFunc(p.ports, func(n namedPort) bool { return n.name == s.named.name && n.protocol == s.named.protocol })
	}
	return p.known && w.reaches(s.peer, p.namespace) && s.peer.pods.Matches(p.labels)
}

func (w *model) join(p *pod, s *set) {
	if _, in := p.in[s]; in || !w.isMember(p, s) {
		return
	}
	var list []element
	for _, a := range w.ownedAddresses(p) {
		e := element{addr: a}
		if s.named != nil {
			i := slices.IndexFunc(p.ports, func(n namedPort) bool { return n.name == s.named.name && n.protocol == s.named.protocol })
			e.protocol, e.port = p.ports[i].protocol, p.ports[i].number
		}
		list = append(list, e)
		w.add(s, e, "")
	}
	p.in[s] = list
}

// fill adds all members to a new set.
func (w *model) fill(s *set) {
	join := func(namespace string) {
		for p := range w.podsOf[namespace] {
			w.join(p, s)
		}
	}
	switch {
	case s.named != nil:
		for namespace := range w.podsOf {
			join(namespace)
		}
	case s.peer.namespaces == nil:
		join(s.peer.namespace)
	default:
		for namespace := range w.podsOf {
			if w.reaches(s.peer, namespace) {
				w.wideSets(namespace)[s] = true
				join(namespace)
			}
		}
	}
}

// isolate gives a Pod of this node the isolation chains that the policies require.
func (w *model) isolate(p *pod) {
	for _, d := range directions() {
		name, lines := w.isolationChain(p, d)
		if old := p.isolationChains[d]; name != old {
			if name != "" {
				w.useChain(name, lines)
			}
			p.isolationChains[d] = name
			if old != "" {
				w.dropChain(old)
			}
		}
	}
	if p.isolationChains == [2]string{} {
		w.enforce(p, nil)
	} else {
		w.enforce(p, w.ownedAddresses(p))
	}
}

// enforce puts the isolation chains of a Pod in force for addresses. Connections of a Pod with itself are always allowed.
func (w *model) enforce(p *pod, addrs []netip.Addr) {
	for _, a := range p.enforced {
		if !slices.Contains(addrs, a) {
			for _, s := range []*set{w.isolationMaps[ingress], w.isolationMaps[egress], w.itself} {
				w.remove(s, element{addr: a})
			}
		}
	}
	for _, a := range addrs {
		for _, d := range directions() {
			if p.isolationChains[d] != "" {
				w.add(w.isolationMaps[d], element{addr: a}, p.isolationChains[d])
			} else {
				w.remove(w.isolationMaps[d], element{addr: a})
			}
		}
		w.add(w.itself, element{addr: a}, "")
	}
	p.enforced = addrs
}

// isolationChain returns the chain for the connections of a Pod in one direction: it jumps to the policies that select
// the Pod, one after the other, and drops what none of them accepts. Pods that the same policies select share a chain.
// Which policies select a Pod that the view does not show yet is unknown: if its namespace has policies, everything is
// dropped.
func (w *model) isolationChain(p *pod, d direction) (name string, lines func() []line) {
	if !p.local || len(w.ownedAddresses(p)) == 0 {
		return "", nil
	}
	var by []key
	for k, pol := range w.policies[p.namespace] {
		if pol.isolates[d] && (!p.known || pol.pods.Matches(p.labels)) {
			by = append(by, k)
		}
	}
	if len(by) == 0 {
		return "", nil
	}
	if !p.known {
		return denyChain, func() []line { return []line{{verdict: drop}} }
	}
	slices.SortFunc(by, compareKeys)
	return isolationChainName(d, by), func() []line {
		var out []line
		for _, k := range by {
			pol := w.policies[k.namespace][k]
			out = append(out, w.jump(policyChain(d, k), func() []line { return w.linesOf(d, pol) }))
		}
		return append(out, line{verdict: drop})
	}
}

// linesOf returns the lines of one policy for one direction.
func (w *model) linesOf(d direction, p *policy) (out []line) {
	for _, r := range p.rules[d] {
		for _, name := range w.peersOf(r) {
			l := line{verdict: accept}
			if !r.anyPort {
				l = w.jump(portsChain(r.ports), func() []line { return w.portLines(r.ports) })
			}
			if d == ingress {
				l.from = name
			} else {
				l.to = name
			}
			out = append(out, l)
		}
	}
	return out
}

// peersOf returns the names of the sets of the peers of a rule, and adds a use to each; "" stands for any address.
func (w *model) peersOf(r rule) (out []string) {
	if r.anyPeer {
		return []string{""}
	}
	for _, p := range r.peers {
		name := peerSet(p)
		if !slices.Contains(out, name) {
			w.useSet(name, func(s *set) { s.peer, s.text = p, p.String() }, w.fill)
			out = append(out, name)
		}
	}
	if len(r.blocks) > 0 {
		name := blockSet(r.blocks)
		w.useSet(name, func(s *set) { s.spans, s.text = r.blocks, fmt.Sprint(r.blocks) }, nil)
		out = append(out, name)
	}
	return out
}

func (w *model) portLines(ports []portMatch) (out []line) {
	for _, p := range ports {
		l := line{protocol: p.protocol, first: p.first, last: p.last, verdict: accept}
		if p.name != "" {
			l = line{named: namedSet(p.protocol, p.name), verdict: accept}
			w.useSet(l.named, func(s *set) { s.named, s.text = &p, p.String() }, w.fill)
		}
		out = append(out, l)
	}
	return out
}

// The names in the kernel have a bounded length. Equal names mean equal contents, except for the chains of policies.

// denyChain drops everything.
const denyChain = "nobody"

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:10])
}

func policyChain(d direction, k key) string {
	readable := k.String()
	if len(readable) > 100 {
		readable = readable[:100]
	}
	return []string{"in-", "out-"}[d] + digest(k.String()) + "-" + readable
}

func isolationChainName(d direction, by []key) string {
	var all strings.Builder
	for _, k := range by {
		all.WriteString(k.String() + " ")
	}
	return []string{"wall-in-", "wall-out-"}[d] + digest(all.String())
}

func portsChain(ports []portMatch) string { return "ports-" + digest(fmt.Sprint(ports)) }

func peerSet(p peer) string { return "pods-" + digest(p.String()) }

func blockSet(list []span) string { return "blocks-" + digest(fmt.Sprint(list)) }

func namedSet(protocol uint8, name string) string {
	return "named-" + portMatch{protocol: protocol, name: name}.String()
}

// isolated reports whether any Pod of this node is isolated.
func (w *model) isolated() bool {
	return len(w.isolationMaps[ingress].elements)+len(w.isolationMaps[egress].elements) > 0
}

// policyCount returns how many policies select Pods of this node.
func (w *model) policyCount() int {
	found := map[string]bool{}
	for name := range maps.Keys(w.chains) {
		for _, prefix := range []string{"in-", "out-"} {
			if policy, ok := strings.CutPrefix(name, prefix); ok {
				found[policy] = true
			}
		}
	}
	return len(found)
}
