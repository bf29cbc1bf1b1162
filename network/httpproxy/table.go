package httpproxy

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Table is the routing table. Finding a rule takes time for the host and path of the request, but not for the number of
// other rules.
type Table struct {
	hosts    map[string]*host // by name, including wildcards such as "*.example.com"
	any      *host
	routes   []*route
	anyDepth bool // wildcards match one or more labels
}

// host holds the rules of one host.
type host struct {
	exact map[string][]*route
	root  node
	rest  []*route
}

// node is a path element in the tree of Prefix rules.
type node struct {
	children map[string]*node
	routes   []*route
}

// route is a rule with its pools.
type route struct {
	Rule
	depth    int // how many elements of the path the rule matches
	backends []weighted
	total    int
	mirrors  []*Pool // the pools of Mirrors
}

type weighted struct {
	pool    *Pool
	upTo    int
	backend Backend
}

// AnyDepth makes the wildcards of the table match one or more labels, as those of the Gateway API do. It must be called
// before the table is used.
func (t *Table) AnyDepth() *Table {
	t.anyDepth = true
	return t
}

// NewTable returns a table of rules. pool returns the pool of a backend; one that is nil has no endpoints.
func NewTable(rules []Rule, pool func(Ref) *Pool) *Table {
	t := &Table{hosts: map[string]*host{}, any: newHost()}
	for _, r := range rules {
		w := &route{Rule: r}
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
		t.routes = append(t.routes, w)
	}
	ordered := slices.Clone(t.routes)
	slices.SortStableFunc(ordered, func(a, b *route) int { return a.narrower(&b.Match) }) // narrower rules first
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

func newHost() *host { return &host{exact: map[string][]*route{}} }

// add adds a rule behind those with precedence.
func (h *host) add(w *route) {
	path, ok := canonical(w.Path)
	if !ok {
		path = w.Path // no request can have such a path
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
		n.routes = append(n.routes, w)
	}
}

// find returns the rule for a request, whose path is canonical.
func (t *Table) find(r *http.Request, path string) *route {
	var held [8]*host
	hosts := t.hostsFor(hostOf(r.Host), held[:0])
	a := requestMatcher{Request: r, path: path}
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

// requestMatcher is a request that is matched with rules. Its query is parsed once, because it may be long and the rules many.
type requestMatcher struct {
	*http.Request
	path  string
	query url.Values // nil until it is needed
}

func (a *requestMatcher) parameters() url.Values {
	if a.query == nil {
		a.query = a.URL.Query()
	}
	return a.query
}

// hostsFor appends the hosts with rules for a name, the most specific one first.
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
		if !t.anyDepth {
			break
		}
		begin += at + 1
	}
	return append(to, t.any)
}

// wild finds the rules for the wildcard of a name.
func (t *Table) wild(name string, at int) *host {
	var key [256]byte
	if len(name)-at+1 > len(key) {
		return nil // longer than a host name can be
	}
	key[0] = '*'
	n := copy(key[1:], name[at:])
	return t.hosts[string(key[:n+1])]
}

func (h *host) find(a *requestMatcher) *route {
	if len(h.exact) > 0 {
		if w := first(h.exact[a.path], a); w != nil {
			return w
		}
	}
	n := &h.root
	best := first(n.routes, a)
	rest := a.path[1:]
	for len(n.children) > 0 {
		element, tail, more := strings.Cut(rest, "/")
		if n = n.children[element]; n == nil {
			break
		}
		if w := first(n.routes, a); w != nil {
			best = w
		}
		if !more {
			break
		}
		rest = tail
	}
	return best
}

func first(list []*route, a *requestMatcher) *route {
	for _, w := range list {
		if w.matches(a) {
			return w
		}
	}
	return nil
}

// matches reports whether a request fulfills the conditions besides host and path.
func (w *route) matches(a *requestMatcher) bool {
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

// choose returns one of the backends for a random number, or nil if there is none.
func (w *route) choose(at int) *weighted {
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

// hostOf returns the host name of a Host header, without the port.
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

// Key is equal for two matches that match the same requests.
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
