package httpproxy

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// BenchmarkFind looks up a rule among more and more hosts; the cost must not grow.
func BenchmarkFind(b *testing.B) {
	for _, n := range []int{10, 1000, 100000} {
		var rules []Rule
		for i := range n {
			host := fmt.Sprintf("host%d.example.com", i)
			for _, path := range []string{"/", "/api", "/api/v1/things", "/static"} {
				rules = append(rules, Rule{Match: Match{Host: host, Path: path}})
			}
		}
		rules = append(rules, Rule{Match: Match{Host: "*.wild.example.com", Path: "/"}})
		table := NewTable(rules, func(Ref) *Pool { return nil })
		for name, r := range map[string]*http.Request{
			"prefix": {Host: fmt.Sprintf("host%d.example.com", n/2), URL: &url.URL{Path: "/api/v1/things/17"}},
			"wild":   {Host: "x.wild.example.com:8080", URL: &url.URL{Path: "/a/b/c"}},
			"none":   {Host: "nobody.example.org", URL: &url.URL{Path: "/"}},
		} {
			b.Run(fmt.Sprintf("%s/hosts=%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					path, ok := pathOf(r.URL)
					if w := table.find(r, path); !ok || (w == nil) != (name == "none") {
						b.Fatal("the wrong rule")
					}
				}
			})
		}
	}
}

// BenchmarkProxy sends requests through the proxy to a server in the same process, and for comparison to the server itself.
func BenchmarkProxy(b *testing.B) {
	answer := []byte(strings.Repeat("x", 1<<10))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write(answer)
	}))
	defer server.Close()
	ref := Ref{Namespace: "ns", Service: "web", Protocol: HTTP}
	pool := NewPool(ref)
	pool.Set(addresses(server.URL))
	defer pool.Set(nil)
	p := NewProxy(Config{HTTPPort: 80, Metrics: NewMetrics("ingress")})
	p.Swap(NewTable([]Rule{{Match: Match{Path: "/"}, Owner: Owner{"ns", "web"}, Backends: []Backend{{Ref: ref, Weight: 1}}}},
		func(Ref) *Pool { return pool }), nil)
	front := httptest.NewServer(p)
	defer front.Close()
	for name, at := range map[string]string{"direct": server.URL, "proxied": front.URL} {
		for _, size := range []int{0, 1 << 20} {
			b.Run(fmt.Sprintf("%s/body=%d", name, size), func(b *testing.B) {
				c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
				defer c.CloseIdleConnections()
				b.ReportAllocs()
				b.SetBytes(int64(size + len(answer)))
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						r, _ := http.NewRequest(http.MethodPost, at, io.LimitReader(zeros{}, int64(size)))
						r.ContentLength = int64(size)
						resp, err := c.Do(r)
						if err != nil {
							b.Error(err)
							return
						}
						_, _ = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
						if resp.StatusCode != http.StatusOK {
							b.Error(resp.Status)
						}
					}
				})
			})
		}
	}
}
