package policy

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

// world is all that policies depend on, and the plan that follows from it: the sets and chains that the kernel shall have. It
// is told one change after the other, and each costs what hangs on it. It knows no kernel.
type world struct {
	plan
	policies   map[string]map[key]*policy // by namespace
	pods       map[key]*pod
	podsOf     map[string]map[*pod]bool // by namespace
	namespaces map[string]labels.Set
	reach      map[string]map[*set]bool // by namespace with Pods: which wide sets it is part of
	claims     map[netip.Addr][]*pod    // who says that an address is theirs; the owner first
	lost       map[netip.Addr]string    // addresses whose owner may have changed, and who that was, since the last call of takeLost
}

// pod is one with its part in the plan.
type pod struct {
	podFacts
	in    map[*set][]element // where it is among the peers
	walls [2]string          // the chain that judges its connections, if there is one
	held  []netip.Addr       // the addresses for which this is in force
}

func newWorld() *world {
	return &world{
		plan: newPlan(), policies: map[string]map[key]*policy{}, pods: map[key]*pod{}, podsOf: map[string]map[*pod]bool{},
		namespaces: map[string]labels.Set{}, reach: map[string]map[*set]bool{}, claims: map[netip.Addr][]*pod{}, lost: map[netip.Addr]string{},
	}
}

// setNamespace notes the labels of a namespace, nil if there is no such namespace any more.
func (w *world) setNamespace(name string, set labels.Set) {
	if set == nil {
		delete(w.namespaces, name)
	} else {
		w.namespaces[name] = set
	}
	before := w.reach[name]
	delete(w.reach, name)
	if before == nil || maps.Equal(before, w.within(name)) {
		return
	}
	for p := range w.podsOf[name] {
		w.introduce(p)
	}
}

// within are the sets of peers by the labels of namespaces that a namespace is part of.
func (w *world) within(namespace string) map[*set]bool {
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

// reaches tells whether a peer may be in a namespace. One that nobody has told us about is only in all of them.
func (w *world) reaches(p peer, namespace string) bool {
	if p.namespaces == nil {
		return p.namespace == namespace
	}
	set, ok := w.namespaces[namespace]
	return p.namespaces.Empty() || ok && p.namespaces.Matches(set)
}

// setPolicy notes a policy; nil says that it is gone.
func (w *world) setPolicy(k key, p *policy) {
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

// setPod notes a Pod; false says that it is gone, or counts no longer.
func (w *world) setPod(facts podFacts, here bool) {
	p := w.pods[facts.key]
	if p == nil {
		if !here {
			return
		}
		p = &pod{in: map[*set][]element{}}
	}
	others := w.claim(p, facts, here)
	if here && p.key == (key{}) {
		p.key = facts.key
		w.pods[p.key] = p
		if w.podsOf[p.namespace] == nil {
			w.podsOf[p.namespace] = map[*pod]bool{}
		}
		w.podsOf[p.namespace][p] = true
	}
	// Who has lost an address first lets go of it.
	for _, o := range append(others, p) {
		w.withdraw(o)
	}
	if here {
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
			w.introduce(o)
		}
		w.isolate(o)
	}
}

// claim notes the addresses that a Pod says it has, and returns the Pods that say so of the same ones.
func (w *world) claim(p *pod, facts podFacts, here bool) (others []*pod) {
	touched := slices.Concat(p.addrs, facts.addrs)
	for _, a := range touched {
		if list := w.claims[a]; len(list) > 0 {
			if _, noted := w.lost[a]; !noted {
				w.lost[a] = list[0].uid
			}
		}
		w.claims[a] = slices.DeleteFunc(w.claims[a], func(o *pod) bool { return o == p })
	}
	if here {
		for _, a := range facts.addrs {
			list := w.claims[a]
			if slices.Contains(list, p) {
				continue
			}
			i := slices.IndexFunc(list, func(o *pod) bool { return o.before(&facts) })
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

// takeLost returns the addresses that have changed hands since the last call.
func (w *world) takeLost() map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for a, was := range w.lost {
		if list := w.claims[a]; len(list) == 0 || list[0].uid != was {
			out[a] = true
		}
	}
	clear(w.lost)
	return out
}

// own are the addresses of a Pod that nobody has a better claim to.
func (w *world) own(p *pod) (out []netip.Addr) {
	for _, a := range p.addrs {
		if list := w.claims[a]; len(list) > 0 && list[0] == p && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// withdraw takes the addresses of a Pod out of everything.
func (w *world) withdraw(p *pod) {
	for s, list := range p.in {
		for _, e := range list {
			w.remove(s, e)
		}
	}
	clear(p.in)
	w.hold(p, nil)
}

// introduce makes a Pod a member of the sets of peers that it belongs to.
func (w *world) introduce(p *pod) {
	for s := range p.in {
		if w.sets[s.name] != s || !w.belongs(p, s) {
			for _, e := range p.in[s] {
				w.remove(s, e)
			}
			delete(p.in, s)
		}
	}
	for s := range w.near[p.namespace] {
		w.join(p, s)
	}
	for s := range w.within(p.namespace) {
		if w.wide[s] {
			w.join(p, s)
		} else {
			delete(w.within(p.namespace), s) // nobody uses it any more
		}
	}
	for _, n := range p.ports {
		if s := w.sets[namedSet(n.protocol, n.name)]; s != nil {
			w.join(p, s)
		}
	}
}

// belongs tells whether a Pod is one of the peers that a set stands for.
func (w *world) belongs(p *pod, s *set) bool {
	if s.named != nil {
		return slices.ContainsFunc(p.ports, func(n namedPort) bool { return n.name == s.named.name && n.protocol == s.named.protocol })
	}
	return p.known && w.reaches(s.peer, p.namespace) && s.peer.pods.Matches(p.labels)
}

func (w *world) join(p *pod, s *set) {
	if _, in := p.in[s]; in || !w.belongs(p, s) {
		return
	}
	var list []element
	for _, a := range w.own(p) {
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

// fill makes every Pod that belongs to a new set a member of it.
func (w *world) fill(s *set) {
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
				w.within(namespace)[s] = true
				join(namespace)
			}
		}
	}
}

// isolate gives a Pod of this node the walls that policies say.
func (w *world) isolate(p *pod) {
	for _, d := range directions() {
		name, lines := w.wallFor(p, d)
		if old := p.walls[d]; name != old {
			if name != "" {
				w.useChain(name, lines)
			}
			p.walls[d] = name
			if old != "" {
				w.dropChain(old)
			}
		}
	}
	if p.walls == [2]string{} {
		w.hold(p, nil)
	} else {
		w.hold(p, w.own(p))
	}
}

// hold puts the walls of a Pod in force for these addresses of it. With itself it may always talk.
func (w *world) hold(p *pod, addrs []netip.Addr) {
	for _, a := range p.held {
		if !slices.Contains(addrs, a) {
			for _, s := range []*set{w.judges[ingress], w.judges[egress], w.itself} {
				w.remove(s, element{addr: a})
			}
		}
	}
	for _, a := range addrs {
		for _, d := range directions() {
			if p.walls[d] != "" {
				w.add(w.judges[d], element{addr: a}, p.walls[d])
			} else {
				w.remove(w.judges[d], element{addr: a})
			}
		}
		w.add(w.itself, element{addr: a}, "")
	}
	p.held = addrs
}

// wallFor is the chain that judges the connections of a Pod in one direction: it asks the policies that select it, one after
// the other, and drops what none of them allows. Pods that are selected by the same policies share it. Of a Pod that the API
// has not told us about we cannot say which policies select it: it gets nothing if there are any.
func (w *world) wallFor(p *pod, d direction) (name string, lines func() []line) {
	if !p.local || len(w.own(p)) == 0 {
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
		return nobodyChain, func() []line { return []line{{verdict: drop}} }
	}
	slices.SortFunc(by, compareKeys)
	return wallChain(d, by), func() []line {
		var out []line
		for _, k := range by {
			pol := w.policies[k.namespace][k]
			out = append(out, w.jump(policyChain(d, k), func() []line { return w.linesOf(d, pol) }))
		}
		return append(out, line{verdict: drop})
	}
}

// linesOf is what one policy allows in one direction.
func (w *world) linesOf(d direction, p *policy) (out []line) {
	for _, r := range p.rules[d] {
		for _, name := range w.peersOf(r) {
			l := line{verdict: accept}
			if !r.every {
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

// peersOf are the sets that the peers of a rule are in, and makes use of them; "" is everybody.
func (w *world) peersOf(r rule) (out []string) {
	if r.anyone {
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

func (w *world) portLines(ports []portMatch) (out []line) {
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

// The names in the kernel. They are of bounded length, tell people what they are about where they can, and equal names are
// equal contents, but for chains of policies, which have the policy's name.
const nobodyChain = "nobody"

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

func wallChain(d direction, by []key) string {
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

// isolated tells whether any Pod of this node has walls.
func (w *world) isolated() bool {
	return len(w.judges[ingress].elements)+len(w.judges[egress].elements) > 0
}

// inForce counts the policies that select Pods of this node.
func (w *world) inForce() int {
	found := map[string]bool{}
	for name := range maps.Keys(w.chains) {
		for _, prefix := range []string{"in-", "out-"} {
			if rest, ok := strings.CutPrefix(name, prefix); ok {
				found[rest] = true
			}
		}
	}
	return len(found)
}
