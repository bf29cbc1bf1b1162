package podautoscaler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"proa.dev/internal/textcase"
)

// TestServedMetrics runs the cases of testdata/served: the APIs that are served, the prepared answer, a query, and after "=>"
// the requests that are sent for it and its result.
func TestServedMetrics(t *testing.T) {
	textcase.Decide(t, "testdata/served/*.txt", "=>", func(t *testing.T, in string) string {
		return runServedCase(t, strings.TrimSpace(in))
	})
}

func runServedCase(t *testing.T, in string) string {
	var out []string
	versions := map[string][]string{}
	var answer *Answer
	sendErr := errors.New("no answer is prepared")
	s := Sources{
		Versions: func(group string) []string { return versions[group] },
		Send: func(_ context.Context, r *Request) (*Answer, error) {
			out = append(out, strings.TrimSpace("asked to "+r.Verb()+" "+r.URL().Path+" "+r.URL().RawQuery))
			return answer, sendErr
		},
		Resources: func(gk schema.GroupKind) ([]schema.GroupResource, error) {
			if gk.Kind == "Ingress" {
				return []schema.GroupResource{{Group: gk.Group, Resource: "ingresses"}}, nil
			}
			return nil, fmt.Errorf("no matches for kind %q in group %q", gk.Kind, gk.Group)
		},
	}
	for line := range strings.SplitSeq(in, "\n") {
		word, rest, _ := strings.Cut(line, " ")
		fields := strings.Fields(rest)
		switch word {
		case "serves":
			versions[fields[0]] = fields[1:]
		case "forbidden":
			sendErr = errors.New("forbidden")
		case "built-in":
			s.Usage = func(context.Context, string, labels.Selector) ([]metricsv1beta1.PodMetrics, error) {
				return []metricsv1beta1.PodMetrics{builtInUsage()}, nil
			}
		case "answer":
			code, err := strconv.Atoi(fields[0])
			if err != nil {
				t.Fatal(err)
			}
			answer, sendErr = &Answer{Code: code, Text: fields[1] == "text", Body: []byte(strings.Join(fields[2:], " "))}, nil
		case "pods", "object", "external":
			out = append(out, query(t, Served(s), word, fields))
		default:
			t.Fatalf("line %q", line)
		}
	}
	return strings.Join(out, "\n")
}

func builtInUsage() metricsv1beta1.PodMetrics {
	p := metricsv1beta1.PodMetrics{Containers: []metricsv1beta1.ContainerMetrics{{Name: "c",
		Usage: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}}}}
	p.Name = "own"
	return p
}

// query runs a query: "pods METRIC", "pods resource=NAME container=NAME", "object METRIC APIVERSION KIND NAME" or "external
// METRIC"; "where=SELECTOR" at the end selects series of the metric.
func query(t *testing.T, m Metrics, word string, f []string) string {
	selector := labels.Everything()
	if text, found := strings.CutPrefix(f[len(f)-1], "where="); found {
		s, err := labels.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		selector, f = s, f[:len(f)-1]
	}
	var got string
	var err error
	switch word {
	case "pods":
		q := Query{Namespace: "ns", Selector: labels.SelectorFromSet(labels.Set{"app": "web"}), Metric: f[0], MetricSelector: selector}
		if name, found := strings.CutPrefix(f[0], "resource="); found {
			q.Metric, q.Resource = "", corev1.ResourceName(name)
			if len(f) > 1 {
				q.Container = strings.TrimPrefix(f[1], "container=")
			}
		}
		var samples map[string]Sample
		samples, err = m.Pods(t.Context(), q)
		var lines []string
		for name, s := range samples {
			lines = append(lines, fmt.Sprintf("%s=%d in %v before %d", name, s.Value, s.Window, s.At.Unix()))
		}
		slices.Sort(lines)
		got = strings.Join(lines, "\n")
	case "object":
		var v int64
		v, err = m.Object(t.Context(), "ns", autoscalingv2.CrossVersionObjectReference{APIVersion: f[1], Kind: f[2], Name: f[3]}, f[0],
			selector)
		got = fmt.Sprint(v)
	case "external":
		var v []int64
		v, err = m.External(t.Context(), "ns", f[0], selector)
		got = fmt.Sprint(v)
	}
	if err != nil {
		return "error " + err.Error()
	}
	return got
}

// TestLongErrorIsTruncated checks that a long error message of another server is truncated.
func TestLongErrorIsTruncated(t *testing.T) {
	m := Served(Sources{Versions: func(string) []string { return []string{"v1beta1"} },
		Send: func(context.Context, *Request) (*Answer, error) {
			return &Answer{Code: 404, Body: []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"` + strings.Repeat("ä",
				20_000) + `"}`)}, nil
		}})
	_, err := m.External(t.Context(), "ns", "queue", labels.Everything())
	if err == nil || len(err.Error()) > maxErrorText+100 || !strings.HasSuffix(err.Error(), "ää") {
		t.Errorf("got %d bytes", len(err.Error()))
	}
}
