package httpapi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"proa.dev/kinds/kind"
	"proa.dev/server"
	"proa.dev/server/mutate"
)

// newRigWithAdmission returns a rig with the mutating and validating admission plugins that are on by default.
func newRigWithAdmission(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	plugins, err := mutate.Plugins(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Mutate, r.Check = slices.DeleteFunc(plugins, func(p server.Plugin) bool { return p.DisabledByDefault }), validatingPlugins(t)
	return r
}

// as returns the same rig with another user.
func (r *rig) as(u user.Info) *rig {
	return &rig{TB: r.TB, Server: r.Server, Handler: r.Handler, store: r.store, who: u}
}

func nodeUser(name string) user.Info {
	return &user.DefaultInfo{Name: "system:node:" + name, Groups: []string{user.NodesGroup, user.AllAuthenticated}}
}

func nodesResource() runtimeschema.GroupResource {
	return runtimeschema.GroupResource{Resource: "nodes"}
}

// decodeYAML decodes an object from YAML.
func decodeYAML[T any](t *testing.T, text string) *T {
	t.Helper()
	obj := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
		t.Fatal(err)
	}
	return obj
}

// TestPluginsSeeStoredObject checks that the old object that a plugin sees is the stored one, whatever the client sends, and after
// a conflict the one that the other writer has stored.
func TestPluginsSeeStoredObject(t *testing.T) {
	r := newRig(t)
	stored := r.create(nodesResource(), decodeYAML[corev1.Node](t,
		`{metadata: {name: n1, labels: {role: db}}, spec: {taints: [{key: k, effect: NoSchedule}]}}`)).(*corev1.Node)
	var seen []*corev1.Node
	race := 0
	r.Check = []server.Plugin{{Name: "Spy", Admit: func(_ context.Context, a *kind.Admission) error {
		if old, ok := a.Old.(*corev1.Node); ok {
			seen = append(seen, old.DeepCopy())
			if race > 0 { // another writer changes the object first
				race--
				_, err := a.Server.Modify(t.Context(), nodesResource(), "", "n1", false, func(o kind.Object) error {
					o.SetLabels(map[string]string{"role": fmt.Sprintf("winner%d", race)})
					return nil
				})
				return err
			}
		}
		return nil
	}}}
	put := func(q *server.Request) {
		o := stored.DeepCopy()
		o.Labels, o.Spec.Taints, o.ResourceVersion = map[string]string{"role": "web"}, nil, ""
		q.Object = o
	}
	patch := func(q *server.Request) {
		q.Patch, q.Body = types.MergePatchType, []byte(`{"metadata":{"labels":{"role":"web"}},"spec":{"taints":null}}`)
	}
	for _, c := range []struct {
		title, verb string
		change      func(*server.Request)
		race        int
		want        []string
	}{
		{"a put", "update", put, 0, []string{"db"}},
		{"a patch", "patch", patch, 0, []string{"db"}},
		{"a put after a conflict", "update", put, 2, []string{"db", "winner1", "winner0"}},
		{"a patch after a conflict", "patch", patch, 1, []string{"db", "winner0"}},
	} {
		t.Run(c.title, func(t *testing.T) {
			if _, err := r.Modify(t, map[string]string{"role": "db"}); err != nil {
				t.Fatal(err)
			}
			seen, race = nil, c.race
			if _, err := r.request(c.verb, "nodes", "", "n1", c.change); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, n := range seen {
				got = append(got, n.Labels["role"])
				if len(n.Spec.Taints) == 0 {
					t.Errorf("the stored taints were not shown")
				}
			}
			if strings.Join(got, " ") != strings.Join(c.want, " ") {
				t.Errorf("shown as old: %v, want %v", got, c.want)
			}
		})
	}
}

// Modify sets the labels of the node, and its taint, without admission.
func (r *rig) Modify(t *testing.T, labels map[string]string) (kind.Object, error) {
	t.Helper()
	plugins := r.Check
	r.Check = nil
	defer func() { r.Check = plugins }()
	o, err := r.Client(r.who).Get(t.Context(), nodesResource(), "", "n1", "")
	if err != nil {
		return nil, err
	}
	o.SetLabels(labels)
	o.(*corev1.Node).Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
	return r.Client(r.who).Update(t.Context(), nodesResource(), o, "")
}

// TestEveryKindOfContainerIsChecked checks that a setting that is not allowed is refused in each kind of container.
func TestEveryKindOfContainerIsChecked(t *testing.T) {
	r := newRigWithAdmission(t)
	r.create(runtimeschema.GroupResource{Resource: "namespaces"}, decodeYAML[corev1.Namespace](t,
		`{metadata: {name: ns, labels: {pod-security.kubernetes.io/enforce: baseline}}}`))
	r.create(runtimeschema.GroupResource{Resource: "serviceaccounts"}, decodeYAML[corev1.ServiceAccount](t,
		`{metadata: {namespace: ns, name: tight, annotations: {kubernetes.io/enforce-mountable-secrets: "true"}}, secrets: [{name: mine}]}`))
	pods := runtimeschema.GroupResource{Resource: "pods"}
	head := `metadata: {namespace: ns, name: p}, spec: {serviceAccountName: tight, automountServiceAccountToken: false, `
	plain := `containers: [{name: c, image: i}]`
	for title, spec := range map[string]string{
		"privileged":                 `containers: [{name: c, image: i, securityContext: {privileged: true}}]`,
		"privileged at first":        plain + `, initContainers: [{name: d, image: i, securityContext: {privileged: true}}]`,
		"a host path":                plain + `, volumes: [{name: v, hostPath: {path: /}}]`,
		"a secret":                   `containers: [{name: c, image: i, env: [{name: E, valueFrom: {secretKeyRef: {name: other, key: k}}}]}]`,
		"all of a secret":            `containers: [{name: c, image: i, envFrom: [{secretRef: {name: other}}]}]`,
		"a secret at first":          plain + `, initContainers: [{name: d, image: i, envFrom: [{secretRef: {name: other}}]}]`,
		"a secret in a volume":       plain + `, volumes: [{name: v, secret: {secretName: other}}]`,
		"a secret for pulling":       plain + `, imagePullSecrets: [{name: other}]`,
		"a sysctl that is dangerous": plain + `, securityContext: {sysctls: [{name: kernel.msgmax, value: "1"}]}`,
	} {
		if _, err := r.Client(r.who).Create(t.Context(), pods, decodeYAML[corev1.Pod](t, "{"+head+spec+"}}")); !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %v", title, err)
		}
	}
	r.create(pods, decodeYAML[corev1.Pod](t, "{"+head+plain+"}}"))
	// Some of these are refused with another error than Forbidden. What matters is that they are not stored.
	for title, ephemeral := range map[string]string{
		"privileged later":      `{name: e, image: i, securityContext: {privileged: true}}`,
		"a secret later":        `{name: e, image: i, env: [{name: E, valueFrom: {secretKeyRef: {name: other, key: k}}}]}`,
		"all of a secret later": `{name: e, image: i, envFrom: [{secretRef: {name: other}}]}`,
		"capabilities later":    `{name: e, image: i, securityContext: {capabilities: {add: [SYS_ADMIN]}}}`,
	} {
		_, err := r.request("patch", "pods", "ns", "p", func(q *server.Request) {
			body, err := yaml.YAMLToJSON([]byte(`{spec: {ephemeralContainers: [` + ephemeral + `]}}`))
			if err != nil {
				t.Fatal(err)
			}
			q.Sub, q.Patch, q.Body = q.Def.Sub("ephemeralcontainers"), types.StrategicMergePatchType, body
		})
		if err == nil {
			t.Errorf("%s: it is there", title)
		}
	}
	if o, err := r.State.Get(t.Context(), pods, "ns", "p"); err != nil || len(o.(*corev1.Pod).Spec.EphemeralContainers) > 0 {
		t.Errorf("got %v, %v", o, err)
	}
	if _, err := r.request("patch", "pods", "ns", "p", func(q *server.Request) {
		q.Sub, q.Patch = q.Def.Sub("ephemeralcontainers"), types.StrategicMergePatchType
		q.Body = []byte(`{"spec":{"ephemeralContainers":[{"name":"e","image":"i"}]}}`)
	}); err != nil {
		t.Errorf("a harmless one: %v", err)
	}
}

// TestNodesAreLimitedToTheirObjects checks that a node that has been taken over cannot reach beyond its own objects.
func TestNodesAreLimitedToTheirObjects(t *testing.T) {
	r := newRigWithAdmission(t)
	own := r.create(nodesResource(), decodeYAML[corev1.Node](t,
		`{metadata: {name: n1, labels: {node-restriction.kubernetes.io/team: blue}}, spec: {taints: [{key: k, effect: NoSchedule}]}}`))
	r.create(nodesResource(), decodeYAML[corev1.Node](t, `{metadata: {name: n2}}`))
	r.create(runtimeschema.GroupResource{Resource: "namespaces"}, decodeYAML[corev1.Namespace](t, `{metadata: {name: ns}}`))
	r.create(runtimeschema.GroupResource{Resource: "serviceaccounts"},
		decodeYAML[corev1.ServiceAccount](t, `{metadata: {namespace: ns, name: default}}`))
	n := r.as(nodeUser("n1"))
	for title, c := range map[string]struct{ node, sub, patch string }{
		"an owner that is gone":                 {"n1", "", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"gone","uid":"x"}]}}`},
		"an owner by its status":                {"n1", "status", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"gone","uid":"x"}]}}`},
		"a role":                                {"n1", "", `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`},
		"a role by its status":                  {"n1", "status", `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`},
		"another team":                          {"n1", "", `{"metadata":{"labels":{"node-restriction.kubernetes.io/team":"red"}}}`},
		"no team":                               {"n1", "", `{"metadata":{"labels":{"node-restriction.kubernetes.io/team":null}}}`},
		"no taints":                             {"n1", "", `{"spec":{"taints":null}}`},
		"a Pod network of half of the internet": {"n1", "", `{"spec":{"podCIDR":"128.0.0.0/1","podCIDRs":["128.0.0.0/1"]}}`},
		"a network of the cluster":              {"n1", "", `{"spec":{"podCIDR":"10.244.7.0/24","podCIDRs":["10.244.7.0/24"]}}`},
		"more taints":                           {"n1", "", `{"spec":{"taints":[{"key":"k","effect":"NoSchedule"},{"key":"l","effect":"NoExecute"}]}}`},
		"another node":                          {"n2", "", `{"metadata":{"labels":{"a":"b"}}}`},
		"another node by its status":            {"n2", "status", `{"status":{"conditions":[]}}`},
	} {
		_, err := n.request("patch", "nodes", "", c.node, func(q *server.Request) {
			q.Patch, q.Body = types.MergePatchType, []byte(c.patch)
			if c.sub != "" {
				q.Sub = q.Def.Sub(c.sub)
			}
		})
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %v", title, err)
		}
	}
	if _, err := n.request("patch", "nodes", "", "n1", func(q *server.Request) {
		q.Patch, q.Body = types.MergePatchType, []byte(`{"metadata":{"labels":{"topology.kubernetes.io/zone":"a","mine":"x"}}}`)
	}); err != nil {
		t.Errorf("what it may say of itself: %v", err)
	}
	mirror := func(meta, spec string) *corev1.Pod {
		p := decodeYAML[corev1.Pod](t,
			`{metadata: {namespace: ns, name: p, annotations: {kubernetes.io/config.mirror: h}`+meta+`}, spec: {nodeName: n1, containers: [{name: c, image: i}]`+spec+`}}`)
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: own.GetUID(), Controller: new(true)}}
		return p
	}
	foreign := mirror("", "")
	foreign.OwnerReferences[0].UID = "another"
	plain := mirror("", "")
	delete(plain.Annotations, corev1.MirrorPodAnnotationKey)
	pods := runtimeschema.GroupResource{Resource: "pods"}
	for title, p := range map[string]*corev1.Pod{
		"claims of devices": mirror("", `, resourceClaims: [{name: r, resourceClaimName: gpu}]`),
		"an account":        mirror("", `, serviceAccountName: admin`),
		"a secret":          mirror("", `, volumes: [{name: v, secret: {secretName: s}}]`),
		"a token":           mirror("", `, volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}]`),
		"a node of old":     foreign,
		"no mirror":         plain,
	} {
		if _, err := n.Client(n.who).Create(t.Context(), pods, p); !apierrors.IsForbidden(err) {
			t.Errorf("a pod with %s: got %v", title, err)
		}
	}
	r.create(pods, decodeYAML[corev1.Pod](t,
		`{metadata: {namespace: ns, name: elsewhere}, spec: {nodeName: n2, containers: [{name: c, image: i}]}}`))
	if _, err := n.request("delete", "pods", "ns", "elsewhere", nil); !apierrors.IsForbidden(err) {
		t.Errorf("deleting the pod of another: got %v", err)
	}
	if _, err := n.request("patch", "pods", "ns", "elsewhere", func(q *server.Request) {
		q.Sub, q.Patch, q.Body = q.Def.Sub("status"), types.MergePatchType, []byte(`{"status":{"phase":"Failed"}}`)
	}); !apierrors.IsForbidden(err) {
		t.Errorf("the status of the pod of another: got %v", err)
	}
}
