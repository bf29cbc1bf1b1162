package bootstrappolicy

import (
	"go/build"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/auth/rbac/validation"
	"sigs.k8s.io/yaml"
)

func defaultPolicy(t testing.TB) *Policy {
	t.Helper()
	p, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestDefaultMatchesKubernetes compares the policy with the fixture of Kubernetes v1.37.1, object by object. It is skipped
// where the source of Kubernetes is not available.
func TestDefaultMatchesKubernetes(t *testing.T) {
	cache := os.Getenv("GOMODCACHE")
	if cache == "" {
		cache = filepath.Join(build.Default.GOPATH, "pkg", "mod")
	}
	folder := filepath.Join(cache, "k8s.io/kubernetes@v1.37.1/plugin/pkg/auth/authorizer/rbac/bootstrappolicy/testdata")
	if _, err := os.Stat(folder); err != nil {
		t.Skip("the source of Kubernetes v1.37.1 is not in the module cache")
	}
	p := defaultPolicy(t)
	clusterRoles, bindings := map[string]*rbacv1.ClusterRole{}, map[string]*rbacv1.ClusterRoleBinding{}
	roles, local := map[string]*rbacv1.Role{}, map[string]*rbacv1.RoleBinding{}
	for _, file := range []string{"cluster-roles.yaml", "controller-roles.yaml"} {
		readFixture(t, filepath.Join(folder, file), clusterRoles)
	}
	for _, file := range []string{"cluster-role-bindings.yaml", "controller-role-bindings.yaml"} {
		readFixture(t, filepath.Join(folder, file), bindings)
	}
	readFixture(t, filepath.Join(folder, "namespace-roles.yaml"), roles)
	readFixture(t, filepath.Join(folder, "namespace-role-bindings.yaml"), local)

	compare(t, p.ClusterRoles, clusterRoles)
	compare(t, p.ClusterRoleBindings, bindings)
	compare(t, p.Roles, roles)
	compare(t, p.RoleBindings, local)
}

func key(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

func readFixture[T any, P interface {
	*T
	metav1.Object
}](t *testing.T, file string, into map[string]*T) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Items []*T `json:"items"`
	}
	if err := yaml.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	for _, o := range list.Items {
		into[key(P(o))] = o
	}
}

func compare[T any, P interface {
	*T
	metav1.Object
}](t *testing.T, got []*T, want map[string]*T) {
	t.Helper()
	if len(want) == 0 {
		t.Fatal("nothing to compare with")
	}
	seen := map[string]bool{}
	for _, o := range got {
		k := key(P(o))
		if seen[k] {
			t.Errorf("%T %s is there twice", o, k)
		}
		seen[k] = true
		wanted, ok := want[k]
		if !ok {
			t.Errorf("%T %s is not part of Kubernetes", o, k)
			continue
		}
		g, _ := yaml.Marshal(o)
		w, _ := yaml.Marshal(withoutType(wanted))
		if string(g) != string(w) {
			t.Errorf("%T %s:\ngot\n%swant\n%s", o, k, g, w)
		}
	}
	for k := range maps.Keys(want) {
		if !seen[k] {
			t.Errorf("%T %s is missing", want[k], k)
		}
	}
}

// withoutType removes kind and apiVersion, which the encoder sets for the objects of the policy.
func withoutType[T any](o *T) *T {
	reflect.ValueOf(o).Elem().FieldByName("TypeMeta").SetZero()
	return o
}

func TestDefaultIsConsistent(t *testing.T) {
	p := defaultPolicy(t)
	var names []string
	for _, r := range p.ClusterRoles {
		names = append(names, "ClusterRole/"+r.Name)
		if r.Labels["kubernetes.io/bootstrapping"] != "rbac-defaults" ||
			r.Annotations["rbac.authorization.kubernetes.io/autoupdate"] != "true" {
			t.Errorf("%s is not marked", r.Name)
		}
		for _, rule := range r.Rules {
			if slices.Contains(rule.Verbs, "") || slices.Contains(rule.Resources, "") || !slices.IsSorted(rule.Verbs) {
				t.Errorf("%s: inconsistent rule %+v", r.Name, rule)
			}
		}
	}
	for _, r := range p.Roles {
		names = append(names, "Role/"+r.Namespace+"/"+r.Name)
	}
	for _, b := range p.ClusterRoleBindings {
		if !slices.Contains(names, b.RoleRef.Kind+"/"+b.RoleRef.Name) {
			t.Errorf("%s binds %s, which does not exist", b.Name, b.RoleRef.Name)
		}
		// An unauthenticated client must not be able to do anything else.
		for _, s := range b.Subjects {
			if s.Name == "system:unauthenticated" && b.Name != "system:public-info-viewer" {
				t.Errorf("%s grants permissions to every user", b.Name)
			}
		}
	}
	for _, b := range p.RoleBindings {
		if !slices.Contains(names, "Role/"+b.Namespace+"/"+b.RoleRef.Name) {
			t.Errorf("%s/%s binds %s, which does not exist", b.Namespace, b.Name, b.RoleRef.Name)
		}
	}
	if len(p.NodeRules()) == 0 {
		t.Error("there are no rules for nodes")
	}
	if ok, _ := validation.Covers(p.NodeRules(),
		[]rbacv1.PolicyRule{{Verbs: []string{"list"}, APIGroups: []string{"apps"}, Resources: []string{"deployments"}}}); ok {
		t.Error("nodes may list deployments")
	}
	other := defaultPolicy(t)
	other.ClusterRoles[0].Labels["x"] = "y"
	if _, ok := defaultPolicy(t).ClusterRoles[0].Labels["x"]; ok {
		t.Error("two policies share memory")
	}
}

func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"clusterrole", `policy line 1: cannot read "clusterrole"`},
		{"# x\n\nrole only-one", `policy line 3: cannot read "role only-one"`},
		{"  get core pods", `policy line 1: "get core pods" belongs to no role`},
		{"  bound user:x", "policy line 1: a binding belongs to no role"},
		{"clusterrole r\n  get core", `policy line 2: "get core" is no rule`},
		{"clusterrole r\n  get url / x", `policy line 2: "x" is too much for a rule about paths`},
		{"clusterrole r\n  bound alice", `policy line 2: "alice" is no subject`},
		{"clusterrole r\n  bound sa:alice", `policy line 2: "sa:alice" is no subject`},
		{"clusterrolebinding b r user:x", `policy line 1: "r" is no KIND/ROLE`},
	} {
		if _, err := Parse(c.text); err == nil || err.Error() != c.want {
			t.Errorf("%q: got %v, want %s", c.text, err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(text)
	f.Add("clusterrole r\n  label x\n  aggregate x\n  get core pods a,b\n  bound as y user:x group: sa:/\nrolebinding n b Role/r\n")
	f.Add(" \n\t\n#\n  #")
	f.Fuzz(func(t *testing.T, in string) {
		p, err := Parse(in)
		if err != nil {
			return
		}
		lines := strings.Count(in, "\n") + 1
		if n := len(p.ClusterRoles) + len(p.ClusterRoleBindings) + len(p.Roles) + len(p.RoleBindings); n > lines {
			t.Errorf("%d objects from %d lines", n, lines)
		}
		// A policy that can be parsed can be reconciled, and a second time changes nothing.
		steps := Reconcile(policyObjects{&Policy{}}, p)
		if steps.Empty() != (len(p.ClusterRoles)+len(p.ClusterRoleBindings)+len(p.Roles)+len(p.RoleBindings) == 0) {
			t.Error("not everything would be created")
		}
	})
}
