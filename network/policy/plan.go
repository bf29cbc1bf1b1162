package policy

import (
	"fmt"
	"net/netip"
	"strings"
)

// plan is the sets and chains that the kernel shall have, and what has changed in them since the last call of settle. A set or
// chain is there as long as somebody uses it: Pods use walls, walls use policies, policies use sets and lists of ports.
type plan struct {
	sets   map[string]*set
	chains map[string]*chain
	// judges lead from the address of a Pod to its wall, by direction; itself has the addresses that are behind walls.
	judges [2]*set
	itself *set

	near map[string]map[*set]bool // sets of peers of one namespace
	wide map[*set]bool            // sets of peers by the labels of namespaces

	touchedSets   map[string]bool
	touchedChains map[string]bool
	past          map[string]*set // sets that the kernel may have, and nobody uses
}

// element is an address, or for named ports an address, protocol and port.
type element struct {
	addr     netip.Addr
	protocol uint8
	port     uint16
}

// set is a set of addresses. Which Pods are in it says peer or named; spans are the addresses of a set without Pods.
type set struct {
	name, text string
	users      int
	peer       peer
	named      *portMatch
	spans      []span
	elements   map[element]string // with the chain they lead to, if the set is a map
	touched    map[element]former // those that have changed, and what they were
}

// former is what an element was.
type former struct {
	there bool
	value string
}

// chain is a list of lines that are gone through until one has decided.
type chain struct {
	users int
	lines []line
}

// line decides about connections that it matches: whose source and destination are in sets, whose destination is in a set of
// named ports, whose protocol and port are right. What is empty matches everything.
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
		touchedSets: map[string]bool{}, touchedChains: map[string]bool{}, past: map[string]*set{},
	}
	for _, name := range []string{"ingress", "egress", "itself"} {
		p.useSet(name, func(*set) {}, nil)
	}
	p.judges, p.itself = [2]*set{p.sets["ingress"], p.sets["egress"]}, p.sets["itself"]
	return p
}

// useSet makes use of a set. If it is new, describe says what it is, and fill puts the Pods in.
func (p *plan) useSet(name string, describe func(*set), fill func(*set)) {
	s := p.sets[name]
	if s != nil {
		s.users++
		return
	}
	s = &set{name: name, elements: map[element]string{}, touched: map[element]former{}}
	if old := p.past[name]; old != nil {
		s.touched = old.touched
		delete(p.past, name)
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
	p.past[name] = s
	p.touchedSets[name] = true
	for e := range s.elements {
		p.remove(s, e)
	}
}

// add puts an element into a set, or changes where it leads.
func (p *plan) add(s *set, e element, value string) {
	was, there := s.elements[e]
	if there && was == value {
		return
	}
	p.touch(s, e, former{there, was})
	s.elements[e] = value
}

// remove takes an element out of a set, if it is in.
func (p *plan) remove(s *set, e element) {
	was, there := s.elements[e]
	if !there {
		return
	}
	p.touch(s, e, former{there, was})
	delete(s.elements, e)
}

func (p *plan) touch(s *set, e element, was former) {
	if _, ok := s.touched[e]; !ok {
		s.touched[e] = was
	}
	p.touchedSets[s.name] = true
}

// useChain makes use of a chain. If it is new, lines says what is in it.
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

// rewrite gives a chain other lines, which make use of what they need already.
func (p *plan) rewrite(name string, lines []line) {
	c := p.chains[name]
	old := c.lines
	c.lines = lines
	p.touchedChains[name] = true
	p.release(old)
}

// release ends the use of what lines needed.
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

// jump is a line that leads to a chain, which it makes use of.
func (p *plan) jump(name string, lines func() []line) line {
	p.useChain(name, lines)
	return line{verdict: jump, chain: name}
}

// settle says that the kernel has everything.
func (p *plan) settle() {
	for name := range p.touchedSets {
		if s := p.sets[name]; s != nil {
			clear(s.touched)
		}
	}
	clear(p.touchedSets)
	clear(p.touchedChains)
	clear(p.past)
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
