package httpproxy

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"proa.dev/internal/textcase"
)

func TestTable(t *testing.T) {
	textcase.Decide(t, "testdata/table.txt", "=>", func(t *testing.T, in string) string {
		t.Helper()
		var rules []Rule
		var asks [][]string
		for line := range strings.Lines(in) {
			words := strings.Fields(line)
			switch words[0] {
			case "rule":
				rules = append(rules, parseRule(t, words[1:]))
			case "ask":
				asks = append(asks, words[1:])
			default:
				t.Fatalf("unknown command: %q", line)
			}
		}
		table := NewTable(rules, func(Ref) *Pool { return nil })
		var out strings.Builder
		for _, words := range asks {
			u, err := url.ParseRequestURI(words[2])
			if err != nil {
				t.Fatal(err)
			}
			r := &http.Request{Method: words[0], Host: words[1], URL: u, Header: http.Header{}}
			for _, w := range words[3:] {
				name, value, _ := strings.Cut(w, "=")
				r.Header.Add(name, value)
			}
			got := "refused"
			if path, ok := pathOf(u); ok {
				got = "none"
				if w := table.find(r, path); w != nil {
					got = w.Owner.Name
				}
			}
			fmt.Fprintf(&out, "%s: %s\n", strings.Join(words[1:], " "), got)
		}
		return out.String()
	})
}

// parseRule reads a rule: its name, followed by fields such as host=HOST, prefix=PATH and header=NAME:VALUE.
func parseRule(t *testing.T, words []string) Rule {
	t.Helper()
	r := Rule{Owner: Owner{Name: words[0]}}
	for _, w := range words[1:] {
		name, value, _ := strings.Cut(w, "=")
		pairName, pairValue, _ := strings.Cut(value, ":")
		switch name {
		case "host":
			r.Host = value
		case "prefix", "exact", "rest":
			r.Path, r.Kind = value, map[string]Kind{"prefix": Prefix, "exact": Exact, "rest": Rest}[name]
		case "method":
			r.Method = value
		case "header":
			r.Headers = append(r.Headers, Pair{pairName, pairValue})
		case "query":
			r.Query = append(r.Query, Pair{pairName, pairValue})
		default:
			t.Fatalf("unknown field %q", w)
		}
	}
	return r
}

func TestRewritten(t *testing.T) {
	for _, c := range []struct {
		path        string
		n           int
		replacement string
		want        string
	}{
		{"/foo/bar", 1, "/", "/bar"},
		{"/foo/bar", 1, "/new", "/new/bar"},
		{"/foo/bar", 1, "/new/", "/new/bar"},
		{"/foo", 1, "/", "/"},
		{"/foo", 1, "/new", "/new"},
		{"/foo/", 1, "/", "/"},
		{"/foo/", 2, "/new", "/new"},
		{"/foo/a%2Fb/c", 2, "/x", "/x/c"},
		{"/foo/a%2Fb", 1, "/", "/a%2Fb"},
		{"/any/thing", 0, "/base", "/base/any/thing"},
		{"/", 0, "/base", "/base/"},
	} {
		if got := rewritten(c.path, c.n, c.replacement); got != c.want {
			t.Errorf("the first %d elements of %s replaced by %s: %s, want %s", c.n, c.path, c.replacement, got, c.want)
		}
	}
}

// TestWeights checks that backends get requests in proportion to their weights.
func TestWeights(t *testing.T) {
	pools := map[Ref]*Pool{}
	table := NewTable([]Rule{{Match: Match{Path: "/"},
		Backends: []Backend{{Ref: Ref{Service: "a"}, Weight: 3}, {Ref: Ref{Service: "off"}}, {Ref: Ref{Service: "b"}, Weight: 1}}}},
		func(r Ref) *Pool {
			pools[r] = NewPool(r)
			return pools[r]
		})
	got := map[string]int{}
	for i := range 400 {
		got[table.routes[0].choose(i).pool.ref.Service]++
	}
	if got["a"] != 300 || got["b"] != 100 {
		t.Errorf("400 requests went %v", got)
	}
}

// FuzzPath checks that no accepted path has dot segments for a server that decodes it.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"/a/b", "/a/%2e%2e/b", "/a%2f..%2fb", "/%", "/a/..;/b", "/a\\..\\b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := url.ParseRequestURI(text)
		if err != nil {
			return
		}
		path, ok := pathOf(u)
		if !ok {
			return
		}
		if path[0] != '/' {
			t.Errorf("%q became %q", text, path)
		}
		for e := range strings.FieldsFuncSeq(u.Path, func(r rune) bool { return r == '/' || r == '\\' }) {
			if e == "." || e == ".." {
				t.Errorf("%q was let through as %q, with the element %q", text, path, e)
			}
		}
	})
}

// TestQueriesAreReadOnce checks that the cost of a request does not grow with the length of its query times the number
// of rules that match query parameters, because clients and users control both.
func TestQueriesAreReadOnce(t *testing.T) {
	cost := func(rules int) float64 {
		var list []Rule
		for i := range rules {
			list = append(list, Rule{Match: Match{Path: "/", Query: []Pair{{"user", fmt.Sprint(i)}}}})
		}
		table := NewTable(list, func(Ref) *Pool { return nil })
		r := &http.Request{Method: http.MethodGet, Host: "a",
			URL: &url.URL{Path: "/", RawQuery: "user=nobody&" + strings.Repeat("a=b&", 100)}, Header: http.Header{}}
		return testing.AllocsPerRun(10, func() {
			if table.find(r, "/") != nil {
				t.Error("a rule was found")
			}
		})
	}
	if few, many := cost(1), cost(1000); many > few+1 {
		t.Errorf("with one rule %v allocations, with a thousand %v", few, many)
	}
}
