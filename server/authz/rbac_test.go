package authz_test

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"proa.dev/server/authz"
	"proa.dev/server/authz/bootstrappolicy"
)

// fixedPolicy is an RBAC policy in maps, in place of the server's cache.
type fixedPolicy struct {
	generation   atomic.Int64
	clusterRoles map[string]*rbacv1.ClusterRole
	roles        map[string]*rbacv1.Role
	cluster      []*rbacv1.ClusterRoleBinding
	namespaces   map[string][]*rbacv1.RoleBinding
}

func newFixedPolicy(p *bootstrappolicy.Policy) *fixedPolicy {
	f := &fixedPolicy{
		clusterRoles: map[string]*rbacv1.ClusterRole{}, roles: map[string]*rbacv1.Role{},
		cluster: p.ClusterRoleBindings, namespaces: map[string][]*rbacv1.RoleBinding{},
	}
	for _, o := range p.ClusterRoles {
		f.clusterRoles[o.Name] = o
	}
	for _, o := range p.Roles {
		f.roles[o.Namespace+"/"+o.Name] = o
	}
	for _, o := range p.RoleBindings {
		f.namespaces[o.Namespace] = append(f.namespaces[o.Namespace], o)
	}
	return f
}

func (f *fixedPolicy) Generation() int64 { return f.generation.Load() }

func (f *fixedPolicy) ClusterRole(name string) (*rbacv1.ClusterRole, bool) {
	o, ok := f.clusterRoles[name]
	return o, ok
}

func (f *fixedPolicy) Role(namespace, name string) (*rbacv1.Role, bool) {
	o, ok := f.roles[namespace+"/"+name]
	return o, ok
}

func (f *fixedPolicy) ClusterRoleBindings() iter.Seq[*rbacv1.ClusterRoleBinding] {
	return seqOf(f.cluster)
}

func (f *fixedPolicy) RoleBindings(namespace string) iter.Seq[*rbacv1.RoleBinding] {
	return seqOf(f.namespaces[namespace])
}

func seqOf[T any](list []T) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, o := range list {
			if !yield(o) {
				return
			}
		}
	}
}

func defaultChain(t testing.TB, extra string) (authz.Chain, *fixedPolicy) {
	t.Helper()
	p, err := bootstrappolicy.Default()
	if err != nil {
		t.Fatal(err)
	}
	more, err := bootstrappolicy.Parse(extra)
	if err != nil {
		t.Fatal(err)
	}
	p.ClusterRoles = append(p.ClusterRoles, more.ClusterRoles...)
	p.ClusterRoleBindings = append(p.ClusterRoleBindings, more.ClusterRoleBindings...)
	p.RoleBindings = append(p.RoleBindings, more.RoleBindings...)
	f := newFixedPolicy(p)
	return authz.New(authz.NewNode(&scriptCluster{}, p.NodeRules()), authz.NewRBAC(f)), f
}

// manyBindings returns as many bindings of other users as a large cluster has, as YAML.
func manyBindings() string {
	var b strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&b, "clusterrolebinding crowd-%d ClusterRole/view user:user-%d group:team-%d\n", i, i, i%50)
		fmt.Fprintf(&b, "rolebinding web crowd-%d ClusterRole/system:aggregate-to-edit user:user-%d\n", i, i)
	}
	b.WriteString("rolebinding web mine ClusterRole/system:aggregate-to-edit user:alice\n")
	return b.String()
}

// sampleRequests returns requests that the default policy allows, from the cheapest to the most expensive.
func sampleRequests() map[string]authz.Attributes {
	authenticated := []string{"system:authenticated"}
	return map[string]authz.Attributes{
		"master": {User: &user.DefaultInfo{Name: "admin", Groups: []string{"system:masters", "system:authenticated"}},
			Verb: "list", Resource: "pods", IsResource: true},
		"controller": {User: &user.DefaultInfo{Name: "system:serviceaccount:kube-system:deployment-controller",
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"}},
			Verb: "create", Group: "apps", Version: "v1", Resource: "replicasets", Namespace: "web", IsResource: true},
		"scheduler": {User: &user.DefaultInfo{Name: "system:kube-scheduler", Groups: authenticated},
			Verb: "create", Version: "v1", Resource: "pods", Subresource: "binding", Namespace: "web", Name: "p", IsResource: true},
		"namespaced": {User: &user.DefaultInfo{Name: "alice", Groups: authenticated},
			Verb: "patch", Group: "apps", Version: "v1", Resource: "deployments", Namespace: "web", Name: "d", IsResource: true},
		"path": {User: &user.DefaultInfo{Name: "alice", Groups: authenticated}, Verb: "get", Path: "/apis/apps/v1"},
		"node": {User: &user.DefaultInfo{Name: "system:node:a", Groups: []string{"system:nodes", "system:authenticated"}},
			Verb: "update", Group: "coordination.k8s.io", Version: "v1", Resource: "leases", Namespace: "kube-node-lease", Name: "a",
			IsResource: true},
	}
}

func TestAllowedRequestsDoNotAllocate(t *testing.T) {
	chain, _ := defaultChain(t, manyBindings())
	ctx := context.Background()
	for name, a := range sampleRequests() {
		t.Run(name, func(t *testing.T) {
			if decision, reason, err := chain.Authorize(ctx, a); decision != authz.Allow || err != nil {
				t.Fatalf("%v %q %v", decision, reason, err)
			}
			if n := testing.AllocsPerRun(100, func() { _, _, _ = chain.Authorize(ctx, a) }); n > 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}

func BenchmarkAuthorize(b *testing.B) {
	chain, _ := defaultChain(b, manyBindings())
	ctx := context.Background()
	for name, a := range sampleRequests() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _, _ = chain.Authorize(ctx, a)
			}
		})
	}
}

// BenchmarkChange measures the first request after a binding or role has changed.
func BenchmarkChange(b *testing.B) {
	chain, f := defaultChain(b, manyBindings())
	ctx := context.Background()
	a := sampleRequests()["namespaced"]
	b.ReportAllocs()
	for b.Loop() {
		f.generation.Add(1)
		_, _, _ = chain.Authorize(ctx, a)
	}
}

// TestDecisionIsNotOlderThanGeneration checks that a request after the generation has grown never gets the old
// decision, with any concurrency.
func TestDecisionIsNotOlderThanGeneration(t *testing.T) {
	on, err := bootstrappolicy.Parse("clusterrole r\n  get core pods\nclusterrolebinding b ClusterRole/r user:alice\n")
	if err != nil {
		t.Fatal(err)
	}
	rules := &togglingPolicy{fixedPolicy: newFixedPolicy(on)}
	rbac := authz.NewRBAC(rules)
	a := authz.Attributes{User: &user.DefaultInfo{Name: "alice"}, Verb: "get", Namespace: "web", Resource: "pods", IsResource: true}
	for round := range 200 {
		rules.generation.Add(1) // the binding exists in even generations only
		want := authz.Allow
		if rules.generation.Load()%2 == 1 {
			want = authz.NoOpinion
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if got, _, _ := rbac.Authorize(context.Background(), a); got != want {
					t.Errorf("round %d: got %v, want %v", round, got, want)
				}
			})
		}
		wg.Wait()
	}
}

type togglingPolicy struct{ *fixedPolicy }

func (f *togglingPolicy) ClusterRoleBindings() iter.Seq[*rbacv1.ClusterRoleBinding] {
	if f.generation.Load()%2 == 1 {
		return seqOf[*rbacv1.ClusterRoleBinding](nil)
	}
	return f.fixedPolicy.ClusterRoleBindings()
}

func TestChainStopsAtDenyAndJoinsReasons(t *testing.T) {
	decides := func(d authz.Decision, reason string, err error) authz.Authorizer {
		return authz.Func(func(context.Context, authz.Attributes) (authz.Decision, string, error) { return d, reason, err })
	}
	a := authz.Attributes{User: &user.DefaultInfo{Name: "u"}}
	for _, c := range []struct {
		name  string
		chain authz.Chain
		want  string
	}{
		{"empty", nil, "NoOpinion  <nil>"},
		{"deny wins over later allow",
			authz.Chain{{"a", decides(authz.NoOpinion, "x", nil)}, {"b", decides(authz.Deny, "no", nil)}, {"c", decides(authz.Allow, "",
				nil)}},
			"Deny no <nil>"},
		{"allow wins over earlier error",
			authz.Chain{{"a", decides(authz.NoOpinion, "", fmt.Errorf("down"))}, {"b", decides(authz.Allow, "yes", nil)}},
			"Allow yes <nil>"},
		{"no opinion", authz.Chain{{"a", decides(authz.NoOpinion, "x", fmt.Errorf("down"))}, {"b", decides(authz.NoOpinion, "y", nil)}},
			"NoOpinion a: x\nb: y down"},
	} {
		d, reason, err := c.chain.Authorize(context.Background(), a)
		if got := fmt.Sprintf("%v %s %v", d, reason, err); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	if d, _, err := (authz.Chain{{"a", decides(authz.Allow, "", nil)}}).Authorize(context.Background(),
		authz.Attributes{}); d != authz.NoOpinion || err == nil {
		t.Errorf("without a user: %v %v", d, err)
	}
}

func TestReviews(t *testing.T) {
	spec := &authorizationv1.SubjectAccessReviewSpec{
		User: "u", UID: "1", Groups: []string{"g"}, Extra: map[string]authorizationv1.ExtraValue{"k": {"v"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: "n", Verb: "list", Group: "apps", Resource: "deployments", Subresource: "scale", Name: "d",
			FieldSelector: &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{
				{Key: "a", Operator: metav1.FieldSelectorOpIn, Values: []string{"1"}},
				{Key: "b", Operator: metav1.FieldSelectorOpNotIn, Values: []string{"2"}},
				{Key: "c", Operator: metav1.FieldSelectorOpExists},
				{Key: "d", Operator: metav1.FieldSelectorOpIn, Values: []string{"1", "2"}},
			}},
			LabelSelector: &authorizationv1.LabelSelectorAttributes{RawSelector: "x in (1,"},
		},
	}
	a := authz.AttributesOfReview(spec)
	if got := fmt.Sprintf("%+v", a.User); got != "&{Name:u UID:1 Groups:[g] Extra:map[k:[v]]}" {
		t.Errorf("user %s", got)
	}
	if got := fmt.Sprint(a.Verb, a.Namespace, a.Group, a.Version, a.Resource, a.Subresource, a.Name,
		a.IsResource); got != "listnapps*deploymentsscaledtrue" {
		t.Errorf("attributes %s", got)
	}
	if got := fmt.Sprint(a.FieldSelector); got != "[{= a 1} {!= b 2}]" {
		t.Errorf("field selector %s", got)
	}
	if got, want := fmt.Sprint(a.FieldSelectorError), "[fieldSelectors do not yet support Exists, fieldSelectors do not yet support multiple values]"; got != want {
		t.Errorf("field selector error %s", got)
	}
	status := authz.AnswerReview(context.Background(), authz.Func(func(context.Context, authz.Attributes) (authz.Decision, string, error) {
		return authz.Deny, "because", fmt.Errorf("half broken")
	}), a)
	want := authorizationv1.SubjectAccessReviewStatus{
		Denied: true, Reason: "because",
		EvaluationError: "half broken; spec.resourceAttributes.fieldSelector partially ignored due to parse error; spec.resourceAttributes.labelSelector ignored due to parse error",
	}
	if !reflect.DeepEqual(status, want) {
		t.Errorf("status %+v", status)
	}

	path := authz.AttributesOfSelfReview(a.User,
		&authorizationv1.SelfSubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/x",
			Verb: "get"}})
	if path.IsResource || path.Path != "/x" || path.Verb != "get" || path.User != a.User {
		t.Errorf("path %+v", path)
	}
	// A spec that validation would have rejected must not crash the server.
	if d, _, _ := (authz.Chain{}).Authorize(context.Background(),
		authz.AttributesOfReview(&authorizationv1.SubjectAccessReviewSpec{})); d != authz.NoOpinion {
		t.Errorf("an empty review is answered with %v", d)
	}
}

func TestForCEL(t *testing.T) {
	var got authz.Attributes
	w := authz.ForCEL(authz.Func(func(_ context.Context, a authz.Attributes) (authz.Decision, string, error) {
		got = a
		return authz.Allow, "yes", nil
	}))
	u := &user.DefaultInfo{Name: "u"}
	d, reason, err := w.Authorize(context.Background(), authorizer.AttributesRecord{
		User: u, Verb: "v", Namespace: "n", APIGroup: "g", APIVersion: "1", Resource: "r", Subresource: "s", Name: "x",
		ResourceRequest: true, Path: "/p",
	})
	want := authz.Attributes{User: u, Verb: "v", Namespace: "n", Group: "g", Version: "1", Resource: "r", Subresource: "s", Name: "x",
		IsResource: true, Path: "/p"}
	if d != authorizer.DecisionAllow || reason != "yes" || err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v %q %v %+v", d, reason, err, got)
	}
}
