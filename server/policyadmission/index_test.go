package policyadmission

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"proa.dev/kinds"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// changingSource is a Source whose objects can be changed by a test.
type changingSource struct {
	generation int64
	waits      int
	lists      int
	objects    map[schema.GroupResource][]kind.Object
	err        error
}

func (s *changingSource) Wait(context.Context) error { s.waits++; return nil }

func (s *changingSource) Generation() int64 { return s.generation }

func (s *changingSource) All(r schema.GroupResource) (iter.Seq[kind.Object], error) {
	s.lists++
	return slices.Values(s.objects[r]), s.err
}

// put stores a policy, with a new generation, and a binding to it.
func (s *changingSource) put(t testing.TB, text string) {
	t.Helper()
	p := &admissionv1.ValidatingAdmissionPolicy{}
	if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	p.Name, p.UID = "p", "1"
	s.generation++
	p.Generation = s.generation
	s.objects = map[schema.GroupResource][]kind.Object{
		gr.ValidatingAdmissionPolicies: {p},
		ValidatingBindings(): {&admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "b"},
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "p",
				ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
		}},
	}
}

const onePolicy = `
spec:
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}], matchPolicy: Equivalent}
  validations: [{expression: object.spec.replicas <= 3, message: too many}]
`

// createDeployment returns the creation of a Deployment with four replicas.
func createDeployment(t testing.TB) *kind.Admission {
	t.Helper()
	defs := kinds.All()
	at := slices.IndexFunc(defs, func(d *kind.Def) bool { return d.Kind == "Deployment" && d.Version == "v1" })
	four := int32(4)
	return &kind.Admission{
		Verb: "create", Def: defs[at], Served: defs[at], Namespace: "ns", Name: "web", Final: true, User: &user.DefaultInfo{Name: "bob"},
		Options: &metav1.CreateOptions{},
		Object: &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns"},
			Spec: appsv1.DeploymentSpec{Replicas: &four}},
		Server:   namespaceServer{},
		Kind:     func(schema.GroupVersionKind) *kind.Def { return nil },
		Versions: func(schema.GroupResource) []*kind.Def { return nil },
		Warn:     func(...string) {}, AddAuditAnnotation: func(string, string) {},
	}
}

type namespaceServer struct{ kind.Server }

func (namespaceServer) Get(context.Context, schema.GroupResource, string, string) (kind.Object, error) {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}, nil
}

func newValidatingPlugin(t testing.TB, s Source) (kind.Plugin, *Metrics) {
	t.Helper()
	m := NewMetrics()
	_, p := Plugins(Config{Validating: s, Mutating: s, Authorizer: caseAuthorizer{}, Types: typesOf(t), Metrics: m})
	return p, m
}

// TestPolicyChangesTakeEffect checks that changes of a policy take effect as soon as the source has them.
func TestPolicyChangesTakeEffect(t *testing.T) {
	s := &changingSource{}
	p, _ := newValidatingPlugin(t, s)
	a := createDeployment(t)
	admit := func(want string) {
		t.Helper()
		err := p.Admit(t.Context(), a)
		if (err == nil) != (want == "") || err != nil && !strings.HasSuffix(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	admit("")
	s.put(t, onePolicy)
	admit("denied request: too many")
	s.put(t, strings.Replace(onePolicy, "<= 3", "<= 4", 1))
	admit("")
	s.put(t, strings.Replace(onePolicy, "too many", "again", 1))
	admit("denied request: again")
	s.generation, s.objects = s.generation+1, nil
	admit("")
	if s.waits != 1 {
		t.Errorf("the plugin waited %d times for the policies to be loaded, want once, before the first write", s.waits)
	}
}

// TestExpressionsSeeKind checks that an expression sees the kind of an object that does not have it set, and that the object
// is not changed.
func TestExpressionsSeeKind(t *testing.T) {
	s := &changingSource{}
	s.put(t, strings.Replace(onePolicy, "object.spec.replicas <= 3", "object.kind == 'Deployment' && object.apiVersion == 'apps/v1'", 1))
	p, _ := newValidatingPlugin(t, s)
	a := createDeployment(t)
	if err := p.Admit(t.Context(), a); err != nil || !a.Object.GetObjectKind().GroupVersionKind().Empty() {
		t.Errorf("got %v, and the object is a %v now", err, a.Object.GetObjectKind().GroupVersionKind())
	}
}

// TestPoliciesAreCompiledOnce checks that a policy is not compiled before a write matches, nor again because another
// object has changed.
func TestPoliciesAreCompiledOnce(t *testing.T) {
	s := &changingSource{}
	s.put(t, onePolicy)
	compiled := 0
	x := newIndex(reader[*validation]{
		source: s, policies: gr.ValidatingAdmissionPolicies, bindings: ValidatingBindings(), readBinding: readValidatingBinding,
		readPolicy: func(o kind.Object) *policy[*validation] {
			p := readValidatingPolicy(o)
			program := p.program
			p.program = func() *validation { compiled++; return program() }
			return p
		},
	})
	first, err := x.Current(t.Context())
	if err != nil || len(first) != 1 || compiled != 0 {
		t.Fatalf("got %d policies, compiled %d, %v", len(first), compiled, err)
	}
	before := first[0].program()
	lists := s.lists
	if again, _ := x.Current(t.Context()); again[0].program() != before || s.lists != lists {
		t.Error("the policies were read again, and nothing had changed")
	}
	s.generation++ // as if another policy had changed
	if again, _ := x.Current(t.Context()); again[0].program() != before || s.lists == lists {
		t.Error("a policy was compiled again whose spec has not changed, or nothing was read")
	}
	s.put(t, onePolicy)
	if again, _ := x.Current(t.Context()); again[0].program() == before {
		t.Error("a policy was not compiled again whose generation has changed")
	}
}

// TestUnreadablePolicies checks that a policy which cannot be read rejects all writes, except those that can fix it.
func TestUnreadablePolicies(t *testing.T) {
	s := &changingSource{err: errors.New("no key"), generation: 1}
	p, _ := newValidatingPlugin(t, s)
	a := createDeployment(t)
	if err := p.Admit(t.Context(), a); !errors.Is(err, s.err) {
		t.Errorf("a write: got %v, want %v", err, s.err)
	}
	defs := kinds.All()
	at := slices.IndexFunc(defs, func(d *kind.Def) bool { return d.Resource() == ValidatingBindings() })
	a.Def, a.Served = defs[at], defs[at]
	if err := p.Admit(t.Context(), a); err != nil {
		t.Errorf("a write to a binding: %v", err)
	}
	s.err = nil // while the generation stays the same
	if err := p.Admit(t.Context(), createDeployment(t)); err != nil {
		t.Errorf("a write after the policies can be read: %v", err)
	}
}

// TestMetrics counts decisions by policy, binding, type of error and action.
func TestMetrics(t *testing.T) {
	s := &changingSource{}
	s.put(t, onePolicy)
	p, m := newValidatingPlugin(t, s)
	for range 2 {
		_ = p.Admit(t.Context(), createDeployment(t))
	}
	s.put(t, strings.Replace(onePolicy, "object.spec.replicas <= 3", "object.spec.nothing", 1))
	_ = p.Admit(t.Context(), createDeployment(t))
	registry := prometheus.NewRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		for _, one := range f.GetMetric() {
			line := f.GetName()
			for _, l := range one.GetLabel() {
				line += " " + l.GetName() + "=" + l.GetValue()
			}
			if c := one.GetCounter(); c != nil && c.GetValue() == 2 {
				line += " twice"
			}
			got = append(got, line)
		}
	}
	const labels = " enforcement_action=deny error_type="
	want := []string{
		"apiserver_validating_admission_policy_check_duration_seconds" + labels + "compile_error policy=p policy_binding=b",
		"apiserver_validating_admission_policy_check_duration_seconds" + labels + "invalid_error policy=p policy_binding=b",
		"apiserver_validating_admission_policy_check_total" + labels + "compile_error policy=p policy_binding=b",
		"apiserver_validating_admission_policy_check_total" + labels + "invalid_error policy=p policy_binding=b twice",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestWithoutPoliciesNothingIsAllocated checks that a write in a cluster without policies allocates nothing.
func TestWithoutPoliciesNothingIsAllocated(t *testing.T) {
	p, _ := newValidatingPlugin(t, &changingSource{})
	a := createDeployment(t)
	if n := testing.AllocsPerRun(100, func() { _ = p.Admit(t.Context(), a) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkValidate(b *testing.B) {
	for name, set := range map[string]func(s *changingSource, a *kind.Admission){
		"none":    func(*changingSource, *kind.Admission) {},
		"one":     func(s *changingSource, _ *kind.Admission) { s.put(b, strings.Replace(onePolicy, "<= 3", "<= 4", 1)) },
		"another": func(s *changingSource, a *kind.Admission) { s.put(b, onePolicy); a.Verb = "update" },
	} {
		b.Run(name, func(b *testing.B) {
			s, a := &changingSource{}, createDeployment(b)
			set(s, a)
			p, _ := newValidatingPlugin(b, s)
			b.ReportAllocs()
			for b.Loop() {
				if err := p.Admit(b.Context(), a); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkMutate(b *testing.B) {
	for name, source := range map[string]*changingSource{
		"none": {}, "one": mutatingSource(b, "Never", `[JSONPatch{op: "replace", path: "/spec/replicas", value: 1}]`),
	} {
		b.Run(name, func(b *testing.B) {
			p, _ := Plugins(Config{Validating: source, Mutating: source, Authorizer: caseAuthorizer{}, Types: typesOf(b)})
			a := createDeployment(b)
			a.Final = false
			b.ReportAllocs()
			for b.Loop() {
				a.Reinvocation = &kind.Reinvocation{}
				if err := p.Admit(b.Context(), a); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
