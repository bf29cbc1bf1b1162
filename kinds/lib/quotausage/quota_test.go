package quotausage_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"proa.dev/kinds"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/quotausage"
)

// now is the time of the scripts.
var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func decode(t *testing.T, text string) (*kind.Def, kind.Object) {
	t.Helper()
	var meta metav1.TypeMeta
	if err := yaml.Unmarshal([]byte(text), &meta); err != nil {
		t.Fatal(err)
	}
	for _, d := range kinds.All() {
		if d.GroupVersionKind == meta.GroupVersionKind() {
			obj := d.New()
			if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
				t.Fatal(err)
			}
			d.Default(obj)
			return d, obj
		}
	}
	t.Fatalf("no kind %s", meta.GroupVersionKind())
	return nil, nil
}

func show(list corev1.ResourceList) string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(list)) {
		q := list[name]
		lines = append(lines, string(name)+"="+q.String())
	}
	return strings.Join(lines, "\n")
}

// TestUsage runs scripts: "== title", an object in YAML, "-- usage", and its usage, one resource a line. An object
// after "-- now" is the first one after an update, and "frees" in the result means that the quotas must be recounted.
func TestUsage(t *testing.T) {
	file := "testdata/usage.txt"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for block := range strings.SplitSeq(strings.TrimPrefix(string(text), "== "), "\n== ") {
		title, body, _ := strings.Cut(block, "\n")
		input, want, _ := strings.Cut(body, "-- usage\n")
		var got string
		t.Run(title, func(t *testing.T) {
			before, after, updated := strings.Cut(input, "-- now\n")
			def, obj := decode(t, before)
			c := quotausage.Counter{Resource: def.Resource(), Now: now}
			if updated {
				old := obj
				_, obj = decode(t, after)
				if quotausage.MayFree(obj, old, now) {
					got = "frees\n"
				}
			}
			got += show(c.Usage(obj))
			if got != strings.TrimSpace(want) && os.Getenv("PROA_UPDATE") == "" {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
		out.WriteString("== " + title + "\n" + input + "-- usage\n" + got + "\n\n")
	}
	if os.Getenv("PROA_UPDATE") != "" {
		if err := os.WriteFile(file, []byte(strings.TrimSpace(out.String())+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, p := range pairs {
		name, q, _ := strings.Cut(p, "=")
		out[corev1.ResourceName(name)] = resource.MustParse(q)
	}
	return out
}

// TestRecount computes the usage of a namespace as a controller does.
func TestRecount(t *testing.T) {
	pod := func(name, cpu string, deadline *int64) kind.Object {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
		p.Spec.ActiveDeadlineSeconds = deadline
		p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: list("cpu=" + cpu)}}}
		return p
	}
	ended := pod("ended", "1", nil)
	ended.(*corev1.Pod).Status.Phase = corev1.PodSucceeded
	pods := []kind.Object{pod("a", "500m", nil), pod("b", "1", new(int64(5))), ended}
	spec := &corev1.ResourceQuotaSpec{Hard: list("pods=5", "requests.cpu=5", "count/pods=9", "requests.memory=1Gi", "secrets=3",
		"count/jobs.batch=1")}
	c := quotausage.Counter{Resource: schema.GroupResource{Resource: "pods"}, Now: now}
	if got, want := show(c.Used(spec, pods)), "count/pods=3\npods=2\nrequests.cpu=1500m\nrequests.memory=0"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating}
	if got, want := show(c.Used(spec, pods)), "count/pods=1\npods=1\nrequests.cpu=1\nrequests.memory=0"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	var names []string
	for _, gr := range quotausage.Resources(spec.Hard, nil) {
		names = append(names, gr.String())
	}
	if got := strings.Join(names, " "); got != "pods jobs.batch secrets" {
		t.Errorf("counts %s", got)
	}
}
