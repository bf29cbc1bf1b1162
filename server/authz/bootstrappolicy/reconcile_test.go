package bootstrappolicy

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// policyObjects serves the objects of a policy as those of a cluster.
type policyObjects struct{ *Policy }

func find[T metav1.Object](list []T, namespace, name string) (T, bool) {
	for _, o := range list {
		if o.GetNamespace() == namespace && o.GetName() == name {
			return o, true
		}
	}
	var none T
	return none, false
}

func (h policyObjects) ClusterRole(name string) (*rbacv1.ClusterRole, bool) {
	return find(h.ClusterRoles, "", name)
}
func (h policyObjects) Role(namespace, name string) (*rbacv1.Role, bool) {
	return find(h.Roles, namespace, name)
}
func (h policyObjects) ClusterRoleBinding(name string) (*rbacv1.ClusterRoleBinding, bool) {
	return find(h.ClusterRoleBindings, "", name)
}
func (h policyObjects) RoleBinding(namespace, name string) (*rbacv1.RoleBinding, bool) {
	return find(h.RoleBindings, namespace, name)
}

// TestWithdrawnRulesDoNotCoverWantedOnes checks that what an earlier version granted is taken away before it is decided which
// rules are missing: the step leads to a role that has nothing more to change.
func TestWithdrawnRulesDoNotCoverWantedOnes(t *testing.T) {
	existing, want := mustParse(t, "clusterrole c\n  get,list core pods\n  list core nodes"), mustParse(t, "clusterrole c\n  get core pods")
	want.ClusterRoles[0].Rules[0].ResourceNames = []string{"one"}
	want.Withdraw = map[string]func([]rbacv1.PolicyRule) []rbacv1.PolicyRule{"c": func(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
		return slices.DeleteFunc(rules, func(r rbacv1.PolicyRule) bool { return r.ResourceNames == nil && slices.Contains(r.Verbs, "get") })
	}}
	steps := Reconcile(policyObjects{existing}, want)
	if len(steps.ClusterRoles) != 1 {
		t.Fatalf("%+v", steps.ClusterRoles)
	}
	rules := steps.ClusterRoles[0].Object.Rules
	if len(rules) != 2 || rules[0].Resources[0] != "nodes" || !slices.Equal(rules[1].ResourceNames, []string{"one"}) {
		t.Errorf("the rules become %+v", rules)
	}
	if again := Reconcile(policyObjects{applySteps(existing, steps)}, want); !again.Empty() {
		t.Errorf("a second time: %+v", again)
	}
}

// TestReconcile checks the steps that change an existing policy into the wanted one. All three are texts.
func TestReconcile(t *testing.T) {
	for _, c := range []struct{ name, existing, want, steps string }{
		{"a new cluster gets everything, roles first",
			"",
			"role n r\n  get core pods\n  bound user:u\nclusterrole c\n  get core pods\n  bound user:u",
			"create ClusterRole c\n  [get] [] [pods] []\ncreate ClusterRoleBinding c\n  User u\ncreate Role n/r\n  [get] [] [pods] []\ncreate RoleBinding n/r\n  User u"},
		{"existing objects are not changed",
			"clusterrole c\n  get,list,watch core,apps pods,nodes\n  bound user:u group:g",
			"clusterrole c\n  get core pods\n  list apps nodes\n  bound group:g",
			""},
		{"missing rules are added one by one, others stay",
			"clusterrole c\n  get core pods\n  delete core nodes",
			"clusterrole c\n  get,list core pods\n  get url /x",
			"update ClusterRole c\n  [get] [] [pods] []\n  [delete] [] [nodes] []\n  [list] [] [pods] []\n  [get] [] [] [/x]"},
		{"missing subjects are added",
			"clusterrolebinding b ClusterRole/c user:u\nrolebinding n b Role/r sa:n/s",
			"clusterrolebinding b ClusterRole/c group:g user:u\nrolebinding n b Role/r sa:m/s sa:n/s",
			"update ClusterRoleBinding b\n  User u\n  Group g\nupdate RoleBinding n/b\n  ServiceAccount s\n  ServiceAccount s"},
		{"a binding of another role is recreated",
			"clusterrolebinding b ClusterRole/old user:u",
			"clusterrolebinding b ClusterRole/new group:g",
			"recreate ClusterRoleBinding b\n  Group g"},
		{"a role becomes aggregated",
			"clusterrole c\n  get core pods",
			"clusterrole c\n  aggregate x",
			"update ClusterRole c\n  aggregates x\n  [get] [] [pods] []"},
		{"selectors are added, aggregated rules do not matter",
			"clusterrole c\n  aggregate x\n  get core pods",
			"clusterrole c\n  aggregate y\n  aggregate x",
			"update ClusterRole c\n  aggregates x\n  aggregates y\n  [get] [] [pods] []"},
		{"a role is no longer aggregated",
			"clusterrole c\n  aggregate x\n  get core pods",
			"clusterrole c\n  get core pods",
			"update ClusterRole c\n  [get] [] [pods] []"},
		{"labels are added",
			"clusterrole c\n  label a",
			"clusterrole c\n  label b",
			"update ClusterRole c\n  label a\n  label b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			existing, want := mustParse(t, c.existing), mustParse(t, c.want)
			before := fmt.Sprint(describe(Reconcile(policyObjects{&Policy{}}, existing)))
			steps := Reconcile(policyObjects{existing}, want)
			if got := describe(steps); got != c.steps {
				t.Errorf("got\n%s\nwant\n%s", got, c.steps)
			}
			if after := fmt.Sprint(describe(Reconcile(policyObjects{&Policy{}}, existing))); after != before {
				t.Error("the objects of the cluster were changed")
			}
			if again := Reconcile(policyObjects{applySteps(existing, steps)}, want); !again.Empty() {
				t.Errorf("a second time it still wants\n%s", describe(again))
			}
		})
	}
}

func TestReconcileLeavesProtectedObjects(t *testing.T) {
	existing := mustParse(t,
		"clusterrole c\n  get core pods\nclusterrole same\n  get core pods\nclusterrolebinding b ClusterRole/old\nrolebinding n b Role/r")
	protect := map[string]string{rbacv1.AutoUpdateAnnotationKey: "false"}
	existing.ClusterRoles[0].Annotations = protect
	existing.ClusterRoles[1].Annotations = protect
	existing.ClusterRoleBindings[0].Annotations = protect
	existing.RoleBindings[0].Annotations = protect
	want := mustParse(t,
		"clusterrole c\n  get,list core pods\nclusterrole same\n  get core pods\nclusterrolebinding b ClusterRole/new\nrolebinding n b Role/r user:u")
	steps := Reconcile(policyObjects{existing}, want)
	if !steps.Empty() {
		t.Errorf("it wants\n%s", describe(steps))
	}
	if got := []string{"ClusterRole c", "ClusterRoleBinding b", "RoleBinding n/b"}; !reflect.DeepEqual(steps.Protected, got) {
		t.Errorf("protected %q", steps.Protected)
	}
}

func TestReconcileDefaultTwice(t *testing.T) {
	p := defaultPolicy(t)
	steps := Reconcile(policyObjects{&Policy{}}, p)
	if again := Reconcile(policyObjects{applySteps(&Policy{}, steps)}, defaultPolicy(t)); !again.Empty() || len(again.Protected) > 0 {
		t.Errorf("a second start would write\n%s", describe(again))
	}
}

func mustParse(t *testing.T, text string) *Policy {
	t.Helper()
	p, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// applySteps returns the policy of the cluster after the steps.
func applySteps(existing *Policy, s Steps) *Policy {
	return &Policy{
		ClusterRoles:        put(existing.ClusterRoles, s.ClusterRoles),
		ClusterRoleBindings: put(existing.ClusterRoleBindings, s.ClusterRoleBindings),
		Roles:               put(existing.Roles, s.Roles),
		RoleBindings:        put(existing.RoleBindings, s.RoleBindings),
	}
}

func put[T metav1.Object](existing []T, steps []Step[T]) []T {
	existing = slices.Clone(existing)
	for _, s := range steps {
		i := slices.IndexFunc(existing, func(o T) bool {
			return o.GetNamespace() == s.Object.GetNamespace() && o.GetName() == s.Object.GetName()
		})
		if i >= 0 {
			existing[i] = s.Object
		} else {
			existing = append(existing, s.Object)
		}
	}
	return existing
}

func describe(s Steps) string {
	var lines []string
	head := func(op Op, o metav1.Object) {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s", op, kind(o),
			strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"))))
	}
	rules := func(list []rbacv1.PolicyRule) {
		for _, r := range list {
			lines = append(lines, fmt.Sprintf("  %v %v %v %v", r.Verbs, r.APIGroups, r.Resources, r.NonResourceURLs))
		}
	}
	subjects := func(list []rbacv1.Subject) {
		for _, s := range list {
			lines = append(lines, "  "+s.Kind+" "+s.Name)
		}
	}
	for _, step := range s.ClusterRoles {
		head(step.Op, step.Object)
		for _, label := range []string{"a", "b"} {
			if step.Object.Labels[label] != "" {
				lines = append(lines, "  label "+label)
			}
		}
		if a := step.Object.AggregationRule; a != nil {
			for _, selector := range a.ClusterRoleSelectors {
				for k := range selector.MatchLabels {
					lines = append(lines, "  aggregates "+k)
				}
			}
		}
		rules(step.Object.Rules)
	}
	for _, step := range s.ClusterRoleBindings {
		head(step.Op, step.Object)
		subjects(step.Object.Subjects)
	}
	for _, step := range s.Roles {
		head(step.Op, step.Object)
		rules(step.Object.Rules)
	}
	for _, step := range s.RoleBindings {
		head(step.Op, step.Object)
		subjects(step.Object.Subjects)
	}
	return strings.Join(lines, "\n")
}

func BenchmarkDefault(b *testing.B) {
	for b.Loop() {
		if _, err := Default(); err != nil {
			b.Fatal(err)
		}
	}
}
