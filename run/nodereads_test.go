package run_test

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
)

// secretValue is in every field of a Pod that other nodes must not see: environment variables, annotations, images and commands.
const secretValue = "hunter2"

// podOn returns a Pod on a node, with fields that other nodes must not see, and fields that they need.
func podOn(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": name},
			Annotations: map[string]string{"note": secretValue}},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: "default", AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{
				Name: "c", Image: "example.org/" + secretValue, Command: []string{"run", secretValue},
				Env:   []corev1.EnvVar{{Name: "PASSWORD", Value: secretValue}},
				Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}},
			}},
		},
	}
}

// newNodeClient joins a node with a bootstrap token, and returns a client with its certificate.
func newNodeClient(t *testing.T, c *proatest.Cluster, node string) *httpClient {
	t.Helper()
	request, key := signingRequest(t, "join-"+node, node)
	joiner := newHTTPClient(t, c, createBootstrapToken(t, c, "aaaaa"+node, ""))
	if code, answer := joiner.do("POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests", request); code != http.StatusCreated {
		t.Fatalf("%d %s", code, answer)
	}
	block, _ := pem.Decode(awaitSigned(t, c, "join-"+node).Status.Certificate)
	if block == nil {
		t.Fatal("no certificate was issued")
	}
	return newHTTPClient(t, c, "", tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: key})
}

func newAdminClient(t *testing.T, c *proatest.Cluster) *httpClient {
	t.Helper()
	pair, err := tls.X509KeyPair(c.Config.CertData, c.Config.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	return newHTTPClient(t, c, "", pair)
}

// TestNodeReadsReducedPodsOfOtherNodes checks, over HTTPS and in every format, that a node reads all fields only of the Pods that
// are bound to it, and of other Pods only the fields that it needs.
func TestNodeReadsReducedPodsOfOtherNodes(t *testing.T) {
	c := proatest.Start(t, proatest.Memory())
	node, admin := newNodeClient(t, c, "a"), newAdminClient(t, c)
	for _, name := range []string{"a", "b"} {
		if _, err := c.Client.Create(t.Context(), gr.Nodes,
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"note": secretValue},
				Labels: map[string]string{"zone": "z"}}}); err != nil {
			t.Fatal(err)
		}
		if code, answer := admin.do("POST", "/api/v1/namespaces/default/pods", podOn("on-"+name, name)); code != http.StatusCreated {
			t.Fatalf("%d %s", code, answer)
		}
	}
	if _, err := c.Client.Create(t.Context(), gr.Namespaces,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: map[string]string{"note": secretValue}}}); err != nil {
		t.Fatal(err)
	}
	const pods = "/api/v1/pods"
	formats := map[string]string{
		"JSON": "application/json", "YAML": "application/yaml", "protobuf": "application/vnd.kubernetes.protobuf",
		"a table":  "application/json;as=Table;v=v1;g=meta.k8s.io",
		"metadata": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
	}
	for name, accept := range formats {
		for _, path := range []string{pods, "/api/v1/namespaces/default/pods", pods + "?includeObject=Object", pods + "?limit=1",
			pods + "?fieldSelector=spec.nodeName%3Db",
			pods + "?fieldSelector=metadata.name%3Don-b", pods + "?fieldSelector=spec.nodeName!%3Da", pods + "?labelSelector=app",
			pods + "?resourceVersion=0", "/api/v1/nodes", "/api/v1/namespaces"} {
			code, answer := node.do("GET", path, nil, "Accept", accept)
			if code != http.StatusOK || strings.Contains(answer, secretValue) {
				t.Errorf("%s as %s shows hidden fields to a node: %d %s", path, name, code, answer)
			}
			if code, answer := admin.do("GET", path, nil, "Accept", accept); code != http.StatusOK || name != "a table" &&
				!strings.Contains(answer, secretValue) {
				t.Errorf("%s as %s does not show an administrator everything: %d %s", path, name, code, answer)
			}
		}
		if _, answer := node.do("GET", pods+"?fieldSelector=spec.nodeName%3Da", nil, "Accept", accept); name != "a table" &&
			!strings.Contains(answer, secretValue) || strings.Contains(answer, "on-b") {
			t.Errorf("its own Pods as %s: %s", name, answer)
		}
	}
	_, answer := node.do("GET", "/api/v1/namespaces/default/pods?fieldSelector=metadata.name%3Don-b", nil)
	for _, want := range []string{`"on-b"`, `"app"`, `"nodeName":"b"`, `"web"`, `8080`} {
		if !strings.Contains(answer, want) {
			t.Errorf("a node does not see %s of a Pod of another: %s", want, answer)
		}
	}
	for _, path := range []string{"/api/v1/namespaces/default/pods/on-b", "/api/v1/nodes/b", "/api/v1/namespaces/shop",
		"/api/v1/namespaces/default/pods/on-b/status"} {
		if code, answer := node.do("GET", path, nil); code != http.StatusForbidden {
			t.Errorf("%s: %d %s", path, code, answer)
		}
	}
	for _, name := range []string{"somebody", "system:node:"} { // members of the group have the role of nodes, too
		_, answer := admin.do("GET", pods, nil, "Impersonate-User", name, "Impersonate-Group", "system:nodes")
		if !strings.Contains(answer, `"on-b"`) || strings.Contains(answer, secretValue) {
			t.Errorf("%s, who is in the group of nodes, sees %s", name, answer)
		}
	}
	for _, path := range []string{"/api/v1/namespaces/default/pods/on-a", "/api/v1/nodes/a"} {
		if code, answer := node.do("GET", path, nil); code != http.StatusOK || !strings.Contains(answer, secretValue) {
			t.Errorf("%s: %d %s", path, code, answer)
		}
	}
	if code, answer := node.do("GET", "/api/v1/namespaces/kube-system", nil); code != http.StatusOK {
		t.Errorf("the namespace whose UID names the cluster: %d %s", code, answer)
	}
}

// TestNodeCannotSelectByHiddenFields checks that a node cannot find out values of hidden fields with field selectors.
func TestNodeCannotSelectByHiddenFields(t *testing.T) {
	c := proatest.Start(t, proatest.Memory())
	node := newNodeClient(t, c, "a")
	for _, field := range []string{"spec.serviceAccountName", "spec.schedulerName", "spec.restartPolicy", "status.nominatedNodeName"} {
		for _, op := range []string{"%3D", "%3D%3D", "!%3D"} {
			for _, more := range []string{"", ",spec.nodeName%3Db", ",metadata.name%3Dx", "&watch=1&timeoutSeconds=1"} {
				path := "/api/v1/pods?fieldSelector=" + field + op + "default" + more
				if code, answer := node.do("GET", path, nil); code != http.StatusForbidden ||
					!strings.Contains(answer, "nodes may select pods of others only by") {
					t.Errorf("%s: %d %s", path, code, answer)
				}
			}
		}
		if code, answer := node.do("GET", "/api/v1/pods?fieldSelector="+field+"%3Ddefault,spec.nodeName%3Da", nil); code != http.StatusOK {
			t.Errorf("of its own Pods: %d %s", code, answer)
		}
	}
}

// TestNodeWatchesReducedPodsOfOtherNodes checks that the objects of watch events, whose encoding is shared between watchers, are
// reduced for nodes and for no other user.
func TestNodeWatchesReducedPodsOfOtherNodes(t *testing.T) {
	c := proatest.Start(t, proatest.Memory())
	node, admin := newNodeClient(t, c, "a"), newAdminClient(t, c)
	const path = "/api/v1/pods?watch=1&allowWatchBookmarks=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
	if code, answer := admin.do("POST", "/api/v1/namespaces/default/pods", podOn("before", "b")); code != http.StatusCreated {
		t.Fatalf("%d %s", code, answer)
	}
	type watcher struct {
		name    string
		seesAll bool
		next    func() string
	}
	var watchers []watcher
	for i, c := range []*httpClient{admin, node, admin, node} {
		watchers = append(watchers, watcher{[]string{"an administrator", "a node", "another administrator", "another node"}[i], c == admin,
			c.watch(path)})
	}
	watchers = append(watchers, watcher{"a node that watches its own", true, node.watch(path + "&fieldSelector=spec.nodeName%3Da")})
	// Tables begin with their columns, and are shared from the second event on.
	for _, c := range []*httpClient{admin, node} {
		watchers = append(watchers, watcher{"a table", c == admin,
			c.watch(path+"&includeObject=Object", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")})
	}
	for i := range watchers {
		w := &watchers[i]
		own := strings.HasSuffix(w.name, "its own")
		if !own {
			if got := w.next(); strings.Contains(got, secretValue) != w.seesAll || !strings.Contains(got, `"before"`) {
				t.Errorf("%s begins with %s", w.name, got)
			}
		}
		if got := w.next(); !strings.Contains(got, "BOOKMARK") || !strings.Contains(got, "k8s.io/initial-events-end") {
			t.Errorf("%s gets no bookmark after the initial events: %s", w.name, got)
		}
	}
	for _, name := range []string{"first", "second"} {
		if code, answer := admin.do("POST", "/api/v1/namespaces/default/pods",
			podOn(name, map[string]string{"first": "b", "second": "a"}[name])); code != http.StatusCreated {
			t.Fatalf("%d %s", code, answer)
		}
	}
	if code, answer := admin.do("DELETE", "/api/v1/namespaces/default/pods/first?gracePeriodSeconds=0", nil); code != http.StatusOK {
		t.Fatalf("%d %s", code, answer)
	}
	for i := range watchers {
		w := &watchers[i]
		want := []string{"first", "second", "first"}
		if strings.HasSuffix(w.name, "its own") {
			want = want[1:2]
		}
		for _, name := range want {
			if got := w.next(); strings.Contains(got, secretValue) != w.seesAll || !strings.Contains(got, `"`+name+`"`) {
				t.Errorf("%s sees of the Pod %s: %s", w.name, name, got)
			}
		}
	}
}

// watch opens a watch, and returns a function that reads the next event.
func (c *httpClient) watch(path string, headers ...string) func() string {
	c.Helper()
	resp := c.open(http.MethodGet, path, headers...)
	c.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		c.Fatalf("watch %s: %s", path, resp.Status)
	}
	lines := bufio.NewReader(resp.Body)
	return func() string {
		c.Helper()
		line, err := lines.ReadString('\n')
		if err != nil {
			c.Fatal(err)
		}
		return line
	}
}

// TestNodeListsOnlySecretsOfItsPods checks, over HTTPS, which lists and watches the Node authorizer allows: Secrets and ConfigMaps
// by field selector with the name of one that a Pod of the node refers to.
func TestNodeListsOnlySecretsOfItsPods(t *testing.T) {
	c := proatest.Start(t, proatest.Memory())
	node, admin := newNodeClient(t, c, "a"), newAdminClient(t, c)
	for _, on := range []string{"a", "b"} {
		p := podOn("on-"+on, on)
		p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "of-" + on}}},
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "of-" + on}}},
		}
		for path, o := range map[string]any{
			"pods": p, "secrets": &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "of-" + on}},
			"configmaps": &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "of-" + on}},
		} {
			if code, answer := admin.do("POST", "/api/v1/namespaces/default/"+path, o); code != http.StatusCreated {
				t.Fatalf("%d %s", code, answer)
			}
		}
	}
	for _, resource := range []string{"secrets", "configmaps"} {
		for query, want := range map[string]int{
			"?fieldSelector=metadata.name%3Dof-a":                          http.StatusOK,
			"?fieldSelector=metadata.name%3Dof-b":                          http.StatusForbidden,
			"?fieldSelector=metadata.name!%3Dof-b":                         http.StatusForbidden,
			"?fieldSelector=metadata.name%3Dof-b,metadata.name%3Dof-a":     http.StatusOK, // no object has two names: the list is empty
			"?fieldSelector=metadata.name%3Dof-a,metadata.name!%3Dof-b":    http.StatusOK,
			"?fieldSelector=metadata.namespace%3Ddefault":                  http.StatusForbidden,
			"?labelSelector=metadata.name%3Dof-a":                          http.StatusForbidden,
			"":                                                             http.StatusForbidden,
			"?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dof-b": http.StatusForbidden,
			"?watch=1&timeoutSeconds=1":                                    http.StatusForbidden,
			"?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dof-a": http.StatusOK,
		} {
			if strings.Contains(query, "watch=1") && want == http.StatusOK {
				if next := node.watch("/api/v1/namespaces/default/" + resource + query)(); !strings.Contains(next, "of-a") {
					t.Errorf("%s%s: %s", resource, query, next)
				}
				continue
			}
			if code, answer := node.do("GET", "/api/v1/namespaces/default/"+resource+query, nil); code != want ||
				strings.Contains(answer, `"of-b","namespace"`) {
				t.Errorf("%s%s: %d %s", resource, query, code, answer)
			}
		}
		if code, _ := node.do("GET", "/api/v1/"+resource+"?fieldSelector=metadata.name%3Dof-a", nil); code != http.StatusForbidden {
			t.Errorf("%s of all namespaces: %d", resource, code)
		}
	}
}

// TestOldNodeRoleIsReplaced checks that the role of nodes of an earlier version, which may get every Pod and every namespace, is
// replaced at the first start: nodes may then read what this version needs, and nothing more.
func TestOldNodeRoleIsReplaced(t *testing.T) {
	dir := t.TempDir()
	c := proatest.Start(t, proatest.InDir(dir))
	o, err := c.Client.Get(t.Context(), gr.ClusterRoles, "", "proa:node-network", "")
	if err != nil {
		t.Fatal(err)
	}
	role := o.(*rbacv1.ClusterRole)
	role.Rules = []rbacv1.PolicyRule{{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""},
		Resources: []string{"pods", "namespaces", "nodes", "services", "configmaps"}}}
	if _, err := c.Client.Update(t.Context(), gr.ClusterRoles, role, ""); err != nil {
		t.Fatal(err)
	}
	c.Stop()
	c = proatest.Start(t, proatest.InDir(dir))
	if o, err = c.Client.Get(t.Context(), gr.ClusterRoles, "", "proa:node-network", ""); err != nil {
		t.Fatal(err)
	}
	node := newNodeClient(t, c, "a")
	if code, answer := node.do("GET", "/api/v1/namespaces/kube-system", nil); code != http.StatusOK {
		t.Errorf("the namespace whose UID names the cluster, after the first start: %d %s", code, answer)
	}
	for _, r := range o.(*rbacv1.ClusterRole).Rules {
		if slices.Contains(r.Verbs, "get") && !slices.Equal(r.ResourceNames, []string{"kube-system"}) &&
			!slices.Equal(r.ResourceNames, []string{"proa-cluster"}) {
			text, _ := json.Marshal(r)
			t.Errorf("nodes may still %s", text)
		}
	}
}
