package route

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Table has the rules in such an order that to find one costs what the host and path of the request cost, and not what all the
// other rules do.
type Table struct {
	hosts map[string]*host // by name, "*.example.com" among them
	any   *host
	ways  []*way
}

// host are the rules of one.
type host struct {
	exact map[string][]*way
	root  node
	rest  []*way
}

// node is an element of the paths of Prefix rules.
type node struct {
	children map[string]*node
	ways     []*way
}

// way is a rule with its pools.
type way struct {
	Rule
	depth    int // how many elements of the path match
	backends []weighted
	total    int
}

type weighted struct {
	pool *Pool
	upTo int
}

// NewTable makes a table of rules. The pools of their backends are asked for by name; one that is nil has no endpoints.
func NewTable(rules []Rule, pool func(Ref) *Pool) *Table {
	t := &Table{hosts: map[string]*host{}, any: newHost()}
	for _, r := range rules {
		w := &way{Rule: r}
		for _, b := range r.Backends {
			if b.Weight > 0 {
				w.total += b.Weight
				w.backends = append(w.backends, weighted{pool(b.Ref), w.total})
			}
		}
		h := t.any
		if r.Host != "" {
			if h = t.hosts[r.Host]; h == nil {
				h = newHost()
				t.hosts[r.Host] = h
			}
		}
		h.add(w)
		t.ways = append(t.ways, w)
	}
	return t
}

func newHost() *host { return &host{exact: map[string][]*way{}} }

func (h *host) add(w *way) {
	path, ok := canonical(w.Path)
	if !ok {
		path = w.Path // no request can be like it
	}
	w.depth = len(elements(path))
	switch w.Kind {
	case Rest:
		w.depth = 0
		h.rest = insert(h.rest, w)
	case Exact:
		w.depth = strings.Count(path, "/")
		h.exact[path] = insert(h.exact[path], w)
	default:
		n := &h.root
		for _, e := range elements(path) {
			next := n.children[e]
			if next == nil {
				if n.children == nil {
					n.children = map[string]*node{}
				}
				next = &node{}
				n.children[e] = next
			}
			n = next
		}
		n.ways = insert(n.ways, w)
	}
}

// insert keeps those with more conditions first.
func insert(list []*way, w *way) []*way {
	at := slices.IndexFunc(list, func(o *way) bool { return o.conditions() < w.conditions() })
	if at < 0 {
		at = len(list)
	}
	return slices.Insert(list, at, w)
}

// find is the way of a request, whose path is canonical.
func (t *Table) find(r *http.Request, path string) *way {
	name := hostOf(r.Host)
	exact, wild := t.hosts[name], (*host)(nil)
	if at := strings.IndexByte(name, '.'); at > 0 {
		wild = t.wild(name, at)
	}
	for _, h := range [...]*host{exact, wild, t.any} {
		if h == nil {
			continue
		}
		if w := h.find(r, path); w != nil {
			return w
		}
	}
	for _, h := range [...]*host{exact, wild, t.any} {
		if h == nil {
			continue
		}
		if w := first(h.rest, r); w != nil {
			return w
		}
	}
	return nil
}

// wild finds the rules for every name with one more label.
func (t *Table) wild(name string, at int) *host {
	var key [256]byte
	if len(name)-at+1 > len(key) {
		return nil // longer than names are
	}
	key[0] = '*'
	n := copy(key[1:], name[at:])
	return t.hosts[string(key[:n+1])]
}

func (h *host) find(r *http.Request, path string) *way {
	if len(h.exact) > 0 {
		if w := first(h.exact[path], r); w != nil {
			return w
		}
	}
	n := &h.root
	best := first(n.ways, r)
	rest := path[1:]
	for len(n.children) > 0 {
		element, tail, more := strings.Cut(rest, "/")
		if n = n.children[element]; n == nil {
			break
		}
		if w := first(n.ways, r); w != nil {
			best = w
		}
		if !more {
			break
		}
		rest = tail
	}
	return best
}

func first(list []*way, r *http.Request) *way {
	for _, w := range list {
		if w.takes(r) {
			return w
		}
	}
	return nil
}

// takes says that the conditions beside host and path hold.
func (w *way) takes(r *http.Request) bool {
	if w.Method != "" && w.Method != r.Method {
		return false
	}
	for _, h := range w.Headers {
		if !slices.Contains(r.Header.Values(h.Name), h.Value) {
			return false
		}
	}
	if len(w.Query) > 0 {
		q := r.URL.Query()
		for _, p := range w.Query {
			if got := q[p.Name]; len(got) == 0 || got[0] != p.Value {
				return false
			}
		}
	}
	return true
}

// pool chooses among the backends; at is a number that is as likely as any other.
func (w *way) pool(at int) *Pool {
	switch len(w.backends) {
	case 0:
		return nil
	case 1:
		return w.backends[0].pool
	}
	at %= w.total
	for _, b := range w.backends {
		if at < b.upTo {
			return b.pool
		}
	}
	return nil
}

// hostOf is the name that a request asks for, without the port.
func hostOf(text string) string {
	if strings.HasPrefix(text, "[") {
		inside, _, _ := strings.Cut(text[1:], "]")
		return inside
	}
	if at := strings.LastIndexByte(text, ':'); at >= 0 {
		text = text[:at]
	}
	return strings.ToLower(strings.TrimSuffix(text, "."))
}

// Key is the same for two matches that are for the same requests.
func (m *Match) Key() string {
	path, ok := canonical(m.Path)
	if !ok {
		path = m.Path
	}
	switch m.Kind {
	case Prefix:
		path = "/" + strings.Join(elements(path), "/")
	case Rest:
		path = ""
	case Exact:
	}
	return fmt.Sprintf("%q %s %q %q %q %q", m.Host, m.Kind, path, m.Method, m.Headers, m.Query)
}
