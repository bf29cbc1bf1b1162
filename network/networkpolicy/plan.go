package networkpolicy

import (
	"fmt"
	"net/netip"
	"strings"
)

// plan is the sets and chains that the kernel is to have, with their changes since the last call of markWritten. Sets
// and chains are reference counted: Pods use isolation chains, those use the chains of policies, and those use sets and
// chains of ports.
type plan struct {
	sets   map[string]*set
	chains map[string]*chain
	// isolationMaps are the maps from the address of a Pod to its isolation chain, by direction. itself holds the
	// addresses of isolated Pods, whose connections with themselves are allowed.
	isolationMaps [2]*set
	itself        *set

	near map[string]map[*set]bool // sets of peers without a namespace selector, by namespace
	wide map[*set]bool            // sets of peers with a namespace selector

	touchedSets   map[string]bool
	touchedChains map[string]bool
	removed       map[string]*set // sets that are not in use any more and that the kernel may have
}

// element is an address, or for named ports an address, protocol and port.
type element struct {
	addr     netip.Addr
	protocol uint8
	port     uint16
}

// set is a set of addresses: of the Pods that peer selects, of the Pods with a named port, or of the ranges in spans.
type set struct {
	name, text string
	users      int
	peer       peer
	named      *portMatch
	spans      []span
	elements   map[element]string // the value is the chain that the element leads to, if the set is a map
	touched    map[element]former // the former state of elements that have changed
}

// former is the former state of an element.
type former struct {
	exists bool
	value  string
}

// chain is a list of lines; the first line with a final verdict decides.
type chain struct {
	users int
	lines []line
}

// line is a rule for the connections that it matches by the sets of their source and destination, a set of named ports,
// and their protocol and port. Empty fields match everything.
type line struct {
	from, to    string
	named       string
	protocol    uint8
	first, last uint16
	verdict     verdict
	chain       string // where to jump
}

type verdict string

const (
	accept verdict = "accept"
	drop   verdict = "drop"
	jump   verdict = "jump"
)

func newPlan() plan {
	p := plan{
		sets: map[string]*set{}, chains: map[string]*chain{}, near: map[string]map[*set]bool{}, wide: map[*set]bool{},
		touchedSets: map[string]bool{}, touchedChains: map[string]bool{}, removed: map[string]*set{},
	}
	for _, name := range []string{"ingress", "egress", "itself"} {
		p.useSet(name, func(*set) {}, nil)
	}
	p.isolationMaps, p.itself = [2]*set{p.sets["ingress"], p.sets["egress"]}, p.sets["itself"]
	return p
}

// useSet adds a use to a set. For a new set, describe sets its kind and fill adds its elements.
func (p *plan) useSet(name string, describe func(*set), fill func(*set)) {
	s := p.sets[name]
	if s != nil {
		s.users++
		return
	}
	s = &set{name: name, elements: map[element]string{}, touched: map[element]former{}}
	if old := p.removed[name]; old != nil {
		s.touched = old.touched
		delete(p.removed, name)
	}
	describe(s)
	s.users = 1
	p.sets[name] = s
	p.touchedSets[name] = true
	if s.peer.pods != nil && s.peer.namespaces != nil {
		p.wide[s] = true
	} else if s.peer.pods != nil {
		of := p.near[s.peer.namespace]
		if of == nil {
			of = map[*set]bool{}
			p.near[s.peer.namespace] = of
		}
		of[s] = true
	}
	if fill != nil {
		fill(s)
	}
}

func (p *plan) dropSet(name string) {
	s := p.sets[name]
	if s.users--; s.users > 0 {
		return
	}
	delete(p.sets, name)
	delete(p.wide, s)
	if of := p.near[s.peer.namespace]; of != nil {
		delete(of, s)
		if len(of) == 0 {
			delete(p.near, s.peer.namespace)
		}
	}
	p.removed[name] = s
	p.touchedSets[name] = true
	for e := range s.elements {
		p.remove(s, e)
	}
}

// add adds an element to a set, or changes its value.
func (p *plan) add(s *set, e element, value string) {
	old, exists := s.elements[e]
	if exists && old == value {
		return
	}
	p.touch(s, e, former{exists, old})
	s.elements[e] = value
}

// remove removes an element from a set, if the set has it.
func (p *plan) remove(s *set, e element) {
	old, exists := s.elements[e]
	if !exists {
		return
	}
	p.touch(s, e, former{exists, old})
	delete(s.elements, e)
}

func (p *plan) touch(s *set, e element, old former) {
	if _, ok := s.touched[e]; !ok {
		s.touched[e] = old
	}
	p.touchedSets[s.name] = true
}

// useChain adds a use to a chain. For a new chain, lines returns its lines.
func (p *plan) useChain(name string, lines func() []line) {
	c := p.chains[name]
	if c == nil {
		c = &chain{}
		p.chains[name] = c
		c.lines = lines()
		p.touchedChains[name] = true
	}
	c.users++
}

func (p *plan) dropChain(name string) {
	c := p.chains[name]
	if c.users--; c.users > 0 {
		return
	}
	delete(p.chains, name)
	p.touchedChains[name] = true
	p.release(c.lines)
}

// rewrite replaces the lines of a chain. The new lines have added their uses already.
func (p *plan) rewrite(name string, lines []line) {
	c := p.chains[name]
	old := c.lines
	c.lines = lines
	p.touchedChains[name] = true
	p.release(old)
}

// release removes the uses of lines.
func (p *plan) release(lines []line) {
	for _, l := range lines {
		for _, name := range []string{l.from, l.to, l.named} {
			if name != "" {
				p.dropSet(name)
			}
		}
		if l.chain != "" {
			p.dropChain(l.chain)
		}
	}
}

// jump returns a line that jumps to a chain, and adds a use to the chain.
func (p *plan) jump(name string, lines func() []line) line {
	p.useChain(name, lines)
	return line{verdict: jump, chain: name}
}

// markWritten records that the kernel has all changes.
func (p *plan) markWritten() {
	for name := range p.touchedSets {
		if s := p.sets[name]; s != nil {
			clear(s.touched)
		}
	}
	clear(p.touchedSets)
	clear(p.touchedChains)
	clear(p.removed)
}

func (l line) String() string {
	var out strings.Builder
	word := func(name, value string) {
		if value != "" {
			out.WriteString(name + value + " ")
		}
	}
	word("from ", l.from)
	word("to ", l.to)
	word("at ", l.named)
	if l.protocol != 0 {
		word("", portMatch{protocol: l.protocol, first: l.first, last: l.last}.String())
	}
	return strings.TrimSpace(fmt.Sprint(out.String(), l.verdict, " ", l.chain))
}
