package resourcemetrics

import (
	"context"
	"crypto/tls"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

func TestParse(t *testing.T) {
	text := `# HELP container_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the container in core-seconds
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="c",namespace="ns",pod="p"} 2.5 1700000000123
container_cpu_usage_seconds_total{container="half",namespace="ns",pod="p"} 1
container_memory_working_set_bytes{container="c",namespace="ns",pod="p"} 1.5e+06 1700000000123
container_start_time_seconds{container="c",namespace="ns",pod="p"} 1.6e+09
container_swap_usage_bytes{container="c",namespace="ns",pod="p"} 0
node_cpu_usage_seconds_total 100 1700000000000
node_memory_working_set_bytes 3e+09
pod_cpu_usage_seconds_total{namespace="ns",pod="p"} 7
node_cpu_usage_seconds_total NaN
container_cpu_usage_seconds_total{container="c",namespace="ns",pod="p" 9
`
	s, err := parse(strings.NewReader(text), time.Unix(5, 0))
	if err != nil {
		t.Fatal(err)
	}
	if n := s.node; n.seconds != 100 || n.memory != 3e9 || !n.at.Equal(time.UnixMilli(1700000000000)) || !n.isComplete() {
		t.Errorf("the node: %+v", n)
	}
	c := s.pods[key{"ns", "p"}]
	if len(c) != 2 || c["c"].seconds != 2.5 || c["c"].memory != 1.5e6 || c["c"].started.Unix() != 1600000000 {
		t.Errorf("containers: %+v", c)
	}
	if half := c["half"]; half.isComplete() || !half.at.Equal(time.Unix(5, 0)) {
		t.Errorf("a container without memory: %+v", half)
	}
	if _, err := parse(strings.NewReader(strings.Repeat("x", maxLine+1)), time.Time{}); err == nil {
		t.Error("a line without an end was read")
	}
}

func TestLabels(t *testing.T) {
	m, ok := parseLine(`a{b="c\"d\\e\nf", g="",} 1`)
	if !ok || m.labels["b"] != "c\"d\\e\nf" || len(m.labels) != 2 || m.value != 1 {
		t.Errorf("%+v %v", m, ok)
	}
	for _, bad := range []string{"", " ", "#", "a", "a{", `a{b="c} 1`, `a{b} 1`, "a 1 2 3", "a x", "a 1 x", "a -1", "a{} "} {
		if m, ok := parseLine(bad); ok {
			t.Errorf("%q is read as %+v", bad, m)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`a{b="c\"d"} 1 2`)
	f.Add("node_cpu_usage_seconds_total 100 1700000000000\n")
	f.Fuzz(func(_ *testing.T, text string) { _, _ = parse(strings.NewReader(text), time.Unix(1, 0)) })
}

func TestUsagePerSecond(t *testing.T) {
	at := func(seconds float64, when int64) counter {
		return counter{seconds: seconds, memory: 7, at: time.Unix(when, 0), hasCPU: true, hasMemory: true}
	}
	for _, test := range []struct {
		name          string
		now, previous counter
		start         int64
		want          string
	}{
		{"a while", at(3, 20), at(1, 10), 5, "0.2 in 10s"},
		{"new", at(3, 20), counter{}, 14, "0.5 in 6s"},
		{"restarted", at(1, 20), at(5, 10), 18, "0.5 in 2s"},
		{"restarted and busier", at(9, 20), at(5, 10), 17, "3 in 3s"},
		{"new, with unknown start", at(3, 20), counter{}, 0, "unknown"},
		{"too short", at(3, 10), at(3, 10), 5, "unknown"},
		{"no memory", counter{hasCPU: true}, counter{}, 1, "unknown"},
	} {
		start := time.Unix(test.start, 0)
		if test.start == 0 {
			start = time.Time{}
		}
		got := "unknown"
		if u, ok := usageBetween(test.now, test.previous, start); ok {
			got = fmt.Sprintf("%v in %v", u.cores, u.window)
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

func TestNodesAreScrapedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(nil, slog.New(slog.DiscardHandler))
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "1"}}
		scraped := 0
		one := func() *samplePair {
			t.Helper()
			l, err := s.sampleNode(t.Context(), n, func(context.Context) (*sample, error) {
				scraped++
				return &sample{asked: time.Now()}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		interval := func(l *samplePair) time.Duration { return l.latest.asked.Sub(l.previous.asked) }
		if l := one(); scraped != 2 || interval(l) != minWindow {
			t.Errorf("the first call scrapes %d times, %v apart", scraped, interval(l))
		}
		time.Sleep(cacheTime - time.Second)
		if one(); scraped != 2 {
			t.Error("a fresh sample was scraped again")
		}
		time.Sleep(15 * time.Second)
		if l := one(); scraped != 3 || interval(l) < 15*time.Second {
			t.Errorf("a later call scrapes %d times, %v apart", scraped, interval(l))
		}
		time.Sleep(maxWindow + time.Second)
		if l := one(); scraped != 5 || interval(l) != minWindow {
			t.Errorf("after a long time a call scrapes %d times, %v apart", scraped, interval(l))
		}
		n.UID = "2"
		if one(); scraped != 7 {
			t.Error("another node of the same name was compared with the old one")
		}
	})
}

// cluster has a node and its Pods.
type cluster struct {
	kind.Server
	server *httptest.Server
}

func (c cluster) List(_ context.Context, of schema.GroupResource, _ string) (iter.Seq[kind.Object], error) {
	return func(yield func(kind.Object) bool) {
		if of == gr.Nodes {
			_ = yield(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}) &&
				yield(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "away"}})
			return
		}
		for name, phase := range map[string]corev1.PodPhase{"p": corev1.PodRunning, "done": corev1.PodSucceeded,
			"unknown": corev1.PodRunning} {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"a": "b"}},
				Spec: corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{Phase: phase}}
			if !yield(p) {
				return
			}
		}
	}, nil
}

func (c cluster) Agent(n *corev1.Node) (*url.URL, *http.Transport, error) {
	if n.Name != "n" {
		return nil, nil, fmt.Errorf("no agent")
	}
	u, err := url.Parse(c.server.URL)
	return u, &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}, err
}

func TestMetrics(t *testing.T) {
	scraped := 0
	c := cluster{server: httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics/resource" {
			http.NotFound(w, r)
		}
		at := int64(1700000000000 + scraped*10000)
		fmt.Fprintf(w, "node_cpu_usage_seconds_total %d %d\nnode_memory_working_set_bytes 1048576\n", 100+scraped*5, at)
		for _, name := range []string{"a", "b"} {
			l := `{container="` + name + `",namespace="ns",pod="p"}`
			fmt.Fprintf(w, "container_cpu_usage_seconds_total%s %d %d\ncontainer_memory_working_set_bytes%s 2048\n", l, 10+scraped, at, l)
		}
		scraped++
	}))}
	defer c.server.Close()
	s := New(c, slog.New(slog.DiscardHandler))
	nodes, err := s.Nodes(t.Context(), c)
	if err != nil || len(nodes) != 1 {
		t.Fatalf("%v (%v)", nodes, err)
	}
	if n := nodes[0]; n.Name != "n" || n.Usage.Cpu().String() != "500m" || n.Usage.Memory().String() != "1Mi" ||
		n.Window.Duration != 10*time.Second {
		t.Errorf("%+v", n)
	}
	pods, err := s.Pods(t.Context(), c)
	if err != nil || len(pods) != 1 || scraped != 2 {
		t.Fatalf("%v (%v) after %d scrapes", pods, err, scraped)
	}
	p := pods[0]
	if len(p.Containers) != 2 || p.Containers[0].Name != "a" || p.Containers[0].Usage.Cpu().String() != "100m" || p.Labels["a"] != "b" ||
		p.Timestamp.UnixMilli() != 1700000010000 {
		t.Errorf("%+v", p)
	}
}
