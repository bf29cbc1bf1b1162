package proatest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/trace"
)

// traceEvent is an event of a watch of traces.
type traceEvent struct {
	Type   string
	Object struct {
		trace.Trace
		Code int
	}
}

// watchTraces opens a watch as a user, and returns what reads the next event; the type is empty when the watch has ended.
func watchTraces(t *testing.T, c *proatest.Cluster, who, path string) (next func() traceEvent, code int) {
	t.Helper()
	config := rest.CopyConfig(c.Config)
	config.Timeout = 0
	config.Impersonate.UserName = who
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(stop)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+traceAPI+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := h.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<22)
	return func() (ev traceEvent) {
		t.Helper()
		if lines.Scan() {
			if err := json.Unmarshal(lines.Bytes(), &ev); err != nil {
				t.Fatalf("%s: %v", lines.Text(), err)
			}
		}
		return ev
	}, resp.StatusCode
}

// TestWatchOfTraces checks a watch of traces as clients use it: the present ones come first, then those that are new or have changed, a
// watch goes on from the version of a list, one of a single trace has its spans, and none shows what its user may not get. It ends when
// the user loses the right to watch.
func TestWatchOfTraces(t *testing.T) {
	c := proatest.Start(t, proatest.Memory())
	config := func(name string) {
		t.Helper()
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		if _, err := c.Client.Create(t.Context(), gr.ConfigMaps, o); err != nil {
			t.Fatal(err)
		}
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "few"}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{trace.Group}, Resources: []string{"traces"}},
		{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}},
	}}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "few"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "few"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "eve"}}}
	if _, code := watchTraces(t, c, "eve", "namespaces/default/traces?watch=true"); code != http.StatusForbidden {
		t.Errorf("without the right to watch: %d", code)
	}
	if _, err := c.Client.Create(t.Context(), gr.Roles, role); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client.Create(t.Context(), gr.RoleBindings, binding); err != nil {
		t.Fatal(err)
	}
	config("first")
	list, code, text := getAs[trace.TraceList](t, c, "eve", traceAPI+"namespaces/default/traces")
	if code != http.StatusOK || list.ResourceVersion == "" || len(list.Items) != 1 || list.Items[0].Name != "configmaps:first" {
		t.Fatalf("%d %s", code, text)
	}
	all, _ := watchTraces(t, c, "eve", "namespaces/default/traces?watch=true")
	if ev := all(); ev.Type != "ADDED" || ev.Object.Name != "configmaps:first" || len(ev.Object.Spans) != 0 {
		t.Errorf("at first: %+v", ev)
	}
	one, _ := watchTraces(t, c, "eve", "namespaces/default/traces?watch=true&fieldSelector=metadata.name%3Dconfigmaps:second")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hidden"}}
	if _, err := c.Client.Create(t.Context(), gr.Secrets, secret); err != nil {
		t.Fatal(err)
	}
	config("second")
	for range 40 { // more than the versions that are remembered of a user
		got, code, text := getAs[trace.Trace](t, c, "eve", traceAPI+"namespaces/default/traces/configmaps:first")
		if code != http.StatusOK || got.ResourceVersion != "" {
			t.Fatalf("a single trace: %d %s", code, text)
		}
	}
	later, _ := watchTraces(t, c, "eve", "namespaces/default/traces?watch=true&resourceVersion="+list.ResourceVersion)
	for what, next := range map[string]func() traceEvent{"all": all, "from the version of the list": later} {
		if ev := next(); ev.Type != "ADDED" || ev.Object.Name != "configmaps:second" || ev.Object.ResourceVersion == "" {
			t.Errorf("%s: %+v", what, ev)
		}
	}
	if ev := one(); ev.Type != "ADDED" || len(ev.Object.Spans) == 0 {
		t.Errorf("one: %+v", ev)
	}
	changed := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "second"}, Data: map[string]string{"a": "b"}}
	if _, err := c.Client.Update(t.Context(), gr.ConfigMaps, changed, ""); err != nil {
		t.Fatal(err)
	}
	for what, next := range map[string]func() traceEvent{"all": all, "one": one} {
		if ev := next(); ev.Type != "MODIFIED" || ev.Object.Name != "configmaps:second" {
			t.Errorf("%s: %+v", what, ev)
		}
	}
	if _, code := watchTraces(t, c, "eve", "namespaces/default/traces?watch=true&resourceVersion=1"); code != http.StatusGone {
		t.Errorf("from a version that nobody knows: %d", code)
	}
	if err := c.Client.Delete(t.Context(), gr.RoleBindings, "default", "few", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, next := range []func() traceEvent{all, one} {
		ev := next()
		for ev.Type == "MODIFIED" || ev.Type == "DELETED" { // what she saw may have changed before that
			ev = next()
		}
		if ev.Type != "ERROR" || ev.Object.Code != http.StatusForbidden {
			t.Errorf("without the right: %+v", ev)
		}
		if ev := next(); ev.Type != "" {
			t.Errorf("it goes on with %+v", ev)
		}
	}
}
