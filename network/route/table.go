package route

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Table has the rules in such an order that to find one costs what the host and path of the request cost, and not what all the
// other rules do.
type Table struct {
	hosts map[string]*host // by name, "*.example.com" among them
	any   *host
	ways  []*way
	deep  bool // wildcards stand for one or more labels
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
	mirrors  []*Pool // of Mirrors
}

type weighted struct {
	pool    *Pool
	upTo    int
	backend Backend
}

// AnyDepth makes wildcards of the table stand for one label or more, as those of the Gateway API do. It is for a table that is not in use
// yet.
func (t *Table) AnyDepth() *Table {
	t.deep = true
	return t
}

// NewTable makes a table of rules. The pools of their backends are asked for by name; one that is nil has no endpoints.
func NewTable(rules []Rule, pool func(Ref) *Pool) *Table {
	t := &Table{hosts: map[string]*host{}, any: newHost()}
	for _, r := range rules {
		w := &way{Rule: r}
		for _, b := range r.Backends {
			if b.Weight > 0 {
				w.total += b.Weight
				to := weighted{upTo: w.total, backend: b}
				if !b.Broken {
					to.pool = pool(b.Ref)
				}
				w.backends = append(w.backends, to)
			}
		}
		for _, m := range r.Mirrors {
			w.mirrors = append(w.mirrors, pool(m.Ref))
		}
		t.ways = append(t.ways, w)
	}
	ordered := slices.Clone(t.ways)
	slices.SortStableFunc(ordered, func(a, b *way) int { return a.narrower(&b.Match) }) // narrower ones first
	for _, w := range ordered {
		h := t.any
		if w.Host != "" {
			if h = t.hosts[w.Host]; h == nil {
				h = newHost()
				t.hosts[w.Host] = h
			}
		}
		h.add(w)
	}
	return t
}

func newHost() *host { return &host{exact: map[string][]*way{}} }

// add adds a rule behind those that come before it.
func (h *host) add(w *way) {
	path, ok := canonical(w.Path)
	if !ok {
		path = w.Path // no request can be like it
	}
	w.depth = len(elements(path))
	switch w.Kind {
	case Rest:
		w.depth = 0
		h.rest = append(h.rest, w)
	case Exact:
		w.depth = strings.Count(path, "/")
		h.exact[path] = append(h.exact[path], w)
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
		n.ways = append(n.ways, w)
	}
}

// find is the way of a request, whose path is canonical.
func (t *Table) find(r *http.Request, path string) *way {
	var held [8]*host
	hosts := t.hostsFor(hostOf(r.Host), held[:0])
	a := asked{Request: r, path: path}
	for _, h := range hosts {
		if w := h.find(&a); w != nil {
			return w
		}
	}
	for _, h := range hosts {
		if w := first(h.rest, &a); w != nil {
			return w
		}
	}
	return nil
}

// asked is a request for which a rule is looked for. Its query may be long and the rules many, so it is read once.
type asked struct {
	*http.Request
	path  string
	query url.Values // nil until somebody asks
}

func (a *asked) parameters() url.Values {
	if a.query == nil {
		a.query = a.URL.Query()
	}
	return a.query
}

// hostsFor appends the hosts whose rules are for a name, the most exact one first.
func (t *Table) hostsFor(name string, to []*host) []*host {
	if h := t.hosts[name]; h != nil {
		to = append(to, h)
	}
	for begin := 0; ; {
		at := strings.IndexByte(name[begin:], '.')
		if at < 0 || begin+at == 0 {
			break
		}
		if h := t.wild(name, begin+at); h != nil {
			to = append(to, h)
		}
		if !t.deep {
			break
		}
		begin += at + 1
	}
	return append(to, t.any)
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

func (h *host) find(a *asked) *way {
	if len(h.exact) > 0 {
		if w := first(h.exact[a.path], a); w != nil {
			return w
		}
	}
	n := &h.root
	best := first(n.ways, a)
	rest := a.path[1:]
	for len(n.children) > 0 {
		element, tail, more := strings.Cut(rest, "/")
		if n = n.children[element]; n == nil {
			break
		}
		if w := first(n.ways, a); w != nil {
			best = w
		}
		if !more {
			break
		}
		rest = tail
	}
	return best
}

func first(list []*way, a *asked) *way {
	for _, w := range list {
		if w.takes(a) {
			return w
		}
	}
	return nil
}

// takes says that the conditions beside host and path hold.
func (w *way) takes(a *asked) bool {
	if w.LastElement != "" && a.path[strings.LastIndexByte(a.path, '/')+1:] != w.LastElement {
		return false
	}
	if w.Method != "" && w.Method != a.Method {
		return false
	}
	for _, h := range w.Headers {
		if !slices.Contains(a.Header.Values(h.Name), h.Value) {
			return false
		}
	}
	if len(w.Query) > 0 {
		q := a.parameters()
		for _, p := range w.Query {
			if got := q[p.Name]; len(got) == 0 || got[0] != p.Value {
				return false
			}
		}
	}
	return true
}

// choose returns one of the backends; at is a number that is as likely as any other. Nil says that there is none.
func (w *way) choose(at int) *weighted {
	switch len(w.backends) {
	case 0:
		return nil
	case 1:
		return &w.backends[0]
	}
	at %= w.total
	for i := range w.backends {
		if at < w.backends[i].upTo {
			return &w.backends[i]
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
	return fmt.Sprintf("%q %s %q %q %q %q %q", m.Host, m.Kind, path, m.LastElement, m.Method, m.Headers, m.Query)
}
