package proatest_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/trace"
)

// traces is the resource of traces.
var traces = schema.GroupResource{Group: trace.Group, Resource: "traces"}

// tracedDeployment returns a Deployment.
func tracedDeployment(namespace string) *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "web"}}}},
		},
	}
}

// readTrace reads a trace.
func readTrace(t *testing.T, c client.Client, namespace, name string) (*trace.Trace, error) {
	t.Helper()
	o, err := c.Get(t.Context(), traces, namespace, name, "")
	if err != nil {
		return nil, err
	}
	got, ok := o.(*trace.Trace)
	if !ok {
		t.Fatalf("a trace is a %T", o)
	}
	return got, nil
}

// TestTraceOfADeployment checks that a Deployment's trace goes from its create to Ready, by all hops that a simulated node has.
func TestTraceOfADeployment(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir), proatest.Simulate(2))
		defer c.Stop()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if _, err := c.Client.Create(t.Context(), gr.Deployments, tracedDeployment("default")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		got, err := readTrace(t, c.Client, "default", "deployments.apps:web")
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range got.Spans {
			t.Log(s.Parent != "", s.Start.Sub(got.Start), s.Took, s.Wait, s.HopName, s.Name, s.Actor, s.Object.Name, s.Critical)
		}
		t.Log(got.Summary, got.State, got.Stuck, got.Milestones, got.Later)
		if got.State != trace.Ready || !strings.Contains(got.Summary, "to Ready") {
			t.Errorf("the trace is %s: %s %s", got.State, got.Summary, got.Stuck)
		}
	})
}

// TestTraceHidesForbiddenObjects checks that a trace shows only what its reader may get: nothing of other namespaces, and of kinds
// that the reader may not get only hops and times.
func TestTraceHidesForbiddenObjects(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir), proatest.Simulate(2))
		defer c.Stop()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		for _, ns := range []string{"one", "two"} {
			space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
			if _, err := c.Client.Create(t.Context(), gr.Namespaces, space); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Client.Create(t.Context(), gr.Deployments, tracedDeployment(ns)); err != nil {
				t.Fatal(err)
			}
		}
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "one", Name: "few"}, Rules: []rbacv1.PolicyRule{
			{Verbs: []string{"get", "list"}, APIGroups: []string{trace.Group}, Resources: []string{"traces"}},
			{Verbs: []string{"get"}, APIGroups: []string{"apps"}, Resources: []string{"deployments"}},
		}}
		binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "one", Name: "few"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "few"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "eve"}}}
		all := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "traces"}, Rules: []rbacv1.PolicyRule{role.Rules[0]}}
		allBinding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "traces"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "traces"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "mallory"}}}
		for on, o := range map[schema.GroupResource]kind.Object{
			gr.Roles: role, gr.RoleBindings: binding, gr.ClusterRoles: all, gr.ClusterRoleBindings: allBinding,
		} {
			if _, err := c.Client.Create(t.Context(), on, o); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()

		eve := c.Server.Client(&user.DefaultInfo{Name: "eve", Groups: []string{user.AllAuthenticated}})
		got, err := readTrace(t, eve, "one", "deployments.apps:web")
		if err != nil {
			t.Fatal(err)
		}
		seen, hidden := 0, 0
		for _, s := range got.Spans {
			if s.Hidden {
				hidden++
				if s.Actor != "" || s.Detail != "" || s.Error != "" || s.Object != (trace.Ref{}) || s.Name != "hidden" || s.Process != "" {
					t.Errorf("a hidden span shows %+v", s)
				}
			} else if seen++; s.Object.Resource != "deployments" || s.Object.Namespace != "one" {
				t.Errorf("she sees %s of %+v", s.Name, s.Object)
			}
		}
		if seen == 0 || hidden == 0 || got.Hidden != hidden {
			t.Errorf("she sees %d spans, %d are hidden, and the trace says %d", seen, hidden, got.Hidden)
		}
		for _, name := range []string{"pods:nothing", "replicasets.apps:web", "secrets:x"} {
			if _, err := readTrace(t, eve, "one", name); !apierrors.IsForbidden(err) {
				t.Errorf("%s: %v, want that it is forbidden whether or not it exists", name, err)
			}
		}
		if _, err := readTrace(t, eve, "two", "deployments.apps:web"); !apierrors.IsForbidden(err) {
			t.Errorf("a trace of another namespace: %v", err)
		}
		mallory := c.Server.Client(&user.DefaultInfo{Name: "mallory", Groups: []string{user.AllAuthenticated}})
		for _, name := range []string{"deployments.apps:web", "pods:nothing"} {
			if got, err := readTrace(t, mallory, "one", name); !apierrors.IsForbidden(err) {
				t.Errorf("who may get traces and nothing else gets %v %v", got, err)
			}
		}
	})
}

// TestTracesSurviveRestart checks that a restarted server has the earlier traces, and that it starts with a damaged file.
func TestTracesSurviveRestart(t *testing.T) {
	dir := t.TempDir()
	c := proatest.Start(t, proatest.InDir(dir))
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kept"}}
	if _, err := c.Client.Create(t.Context(), gr.ConfigMaps, config); err != nil {
		t.Fatal(err)
	}
	before, err := readTrace(t, c.Client, "default", "configmaps:kept")
	if err != nil {
		t.Fatal(err)
	}
	c.Stop()
	c = proatest.Start(t, proatest.InDir(dir))
	after, err := readTrace(t, c.Client, "default", "configmaps:kept")
	if err != nil || after.Summary != before.Summary || len(after.Spans) != len(before.Spans) || after.Spans[0].ID != before.Spans[0].ID {
		t.Errorf("after the restart the trace is %+v %v\nand was %+v", after, err, before)
	}
	c.Stop()
	if err := os.WriteFile(filepath.Join(dir, "trace-records"), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	c = proatest.Start(t, proatest.InDir(dir))
	if _, err := readTrace(t, c.Client, "default", "configmaps:kept"); !apierrors.IsNotFound(err) {
		t.Errorf("a trace from a damaged file: %v", err)
	}
}

// TestTracesOverHTTP checks the API over HTTP: lists and Tables omit what the reader may not get. Bodies need a separate permission
// and are shown only of objects that the reader may get, and those of Secrets never.
func TestTracesOverHTTP(t *testing.T) {
	c := proatest.Start(t, proatest.Memory())
	ask := func(who, method, path, accept, body string) (int, string) {
		t.Helper()
		config := rest.CopyConfig(c.Config)
		if who != "" {
			config.Impersonate.UserName, config.Impersonate.Groups = who, []string{user.AllAuthenticated}
		}
		h, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), method, config.Host+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Kubectl-Command", "kubectl create")
		req.Header.Set("Kubectl-Session", "s1")
		resp, err := h.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(data)
	}
	const asJSON, asTable = "application/json", "application/json;as=Table;v=v1;g=meta.k8s.io"
	for _, ns := range []string{"one", "two"} {
		ask("", "POST", "/api/v1/namespaces", asJSON, `{"metadata":{"name":"`+ns+`"}}`)
		ask("", "POST", "/api/v1/namespaces/"+ns+"/configmaps", asJSON, `{"metadata":{"name":"seen"},"data":{"key":"visible-value"}}`)
		ask("", "POST", "/api/v1/namespaces/"+ns+"/secrets", asJSON, `{"metadata":{"name":"safe"},"stringData":{"key":"hunter2"}}`)
		ask("", "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/"+ns+"/rolebindings", asJSON,
			`{"metadata":{"name":"viewer"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"},`+
				`"subjects":[{"kind":"User","name":"viewer-of-`+ns+`","apiGroup":"rbac.authorization.k8s.io"}]}`)
		ask("", "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/"+ns+"/rolebindings", asJSON,
			`{"metadata":{"name":"admin"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"admin"},`+
				`"subjects":[{"kind":"User","name":"admin-of-`+ns+`","apiGroup":"rbac.authorization.k8s.io"}]}`)
	}
	const group = "/apis/trace.proa.dev/v1/namespaces/"
	waitUntil(t, func() bool { // the aggregated roles are filled by a controller
		code, _ := ask("viewer-of-one", "GET", group+"one/traces", asJSON, "")
		wire, _ := ask("admin-of-one", "GET", group+"one/wiretraces/configmaps:seen", asJSON, "")
		return code == http.StatusOK && wire == http.StatusOK
	})
	for _, x := range []struct {
		who, path, accept string
		code              int
		has, lacks        string
	}{
		{"viewer-of-one", "one/traces", asJSON, 200, `"configmaps:seen"`, "secrets:safe"},
		{"viewer-of-one", "one/traces", asTable, 200, `"configmaps:seen","kubectl create"`, "secrets:safe"},
		{"viewer-of-one", "one/traces/configmaps:seen", asJSON, 200, `"name":"commit"`, "visible-value"},
		{"viewer-of-one", "one/traces/secrets:safe", asJSON, 403, "", "commit"},
		{"viewer-of-one", "one/traces/secrets:nothing", asJSON, 403, "", "no record"},
		{"viewer-of-one", "one/traces/configmaps:nothing", asJSON, 404, "no record", ""},
		{"viewer-of-one", "one/traces/nonsense", asJSON, 404, "RESOURCE", ""},
		{"viewer-of-one", "two/traces", asJSON, 403, "", "configmaps:seen"},
		{"viewer-of-one", "two/traces/configmaps:seen", asJSON, 403, "", "commit"},
		{"viewer-of-one", "default/traces/namespaces:one", asJSON, 403, "", "commit"},
		{"viewer-of-one", "one/wiretraces/configmaps:seen", asJSON, 403, "", "visible-value"},
		{"admin-of-one", "one/wiretraces/configmaps:seen", asJSON, 200, "visible-value", ""},
		{"admin-of-one", "two/wiretraces/configmaps:seen", asJSON, 403, "", "visible-value"},
		{"admin-of-one", "one/wiretraces/secrets:safe", asJSON, 200, `"WireTrace"`, "hunter2"},
		{"admin-of-one", "one/wiretraces", asJSON, 403, "", "visible-value"},
		{"", "one/wiretraces/secrets:safe", asJSON, 200, `"name":"commit"`, "hunter2"},
		{"", "default/traces/namespaces:one", asJSON, 200, `"name":"commit"`, ""},
	} {
		code, body := ask(x.who, "GET", group+x.path, x.accept, "")
		if code != x.code || !strings.Contains(body, x.has) || x.lacks != "" && strings.Contains(body, x.lacks) {
			t.Errorf("%q gets of %s: %d %s", x.who, x.path, code, body)
		}
	}
	if _, body := ask("", "GET", "/apis/trace.proa.dev/v1/traces", asJSON, ""); !strings.Contains(body, `"secrets:safe"`) ||
		strings.Contains(body, `"spans":[{`) {
		t.Errorf("an administrator lists %s", body)
	}
}

// waitUntil waits until a condition holds.
func waitUntil(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it has not happened")
		}
	}
}

// TestTracesOfRecreatedNamespace checks that a user of a namespace does not see the traces of a deleted namespace of the same name.
func TestTracesOfRecreatedNamespace(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir))
		defer c.Stop()
		create := func(on schema.GroupResource, o kind.Object) {
			t.Helper()
			if _, err := c.Client.Create(t.Context(), on, o); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		shop := func() *corev1.Namespace { return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}} }
		config := func() *corev1.ConfigMap {
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "prices"}}
		}
		create(gr.Namespaces, shop())
		create(gr.ConfigMaps, config())
		if _, err := readTrace(t, c.Client, "shop", "configmaps:prices"); err != nil {
			t.Fatal(err)
		}
		if err := c.Client.Delete(t.Context(), gr.Namespaces, "", "shop", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		create(gr.Namespaces, shop())
		if got, err := readTrace(t, c.Client, "shop", "configmaps:prices"); !apierrors.IsNotFound(err) {
			t.Errorf("the trace of an earlier namespace is served: %v, %v", got, err)
		}
		again := time.Now()
		create(gr.ConfigMaps, config())
		if got, err := readTrace(t, c.Client, "shop", "configmaps:prices"); err != nil || got.Start.Before(again) {
			t.Errorf("the trace of the new object is %v, %v", got, err)
		}
	})
}
