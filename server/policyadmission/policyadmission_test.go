package policyadmission

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"proa.dev/hop"
	"proa.dev/kinds"
	"proa.dev/kinds/kind"
	"proa.dev/server/admittest"
	fields "proa.dev/server/schema"
)

// TestScripts runs the scripts in testdata: policies, bindings and parameters, a write, and its result. A denial is
// shown with its code and reason, and with its causes if these say more than the message.
func TestScripts(t *testing.T) {
	types, steps := typesOf(t), map[string]int{}
	defer func() {
		for _, want := range []string{"validate ", "validate denied", "mutate changed the object", "mutate failed", "mutate failed, ignored"} {
			if steps[want] == 0 {
				t.Errorf("no write has the step %q in its record", want)
			}
		}
	}()
	admittest.Run(t, func(map[string][]byte) ([]kind.Plugin, error) {
		with := func(choose func(mutating, validating kind.Plugin) kind.Plugin, final bool) func(context.Context, *kind.Admission) error {
			return func(ctx context.Context, a *kind.Admission) error {
				a.Final, a.Options = final, &metav1.CreateOptions{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1",
					Kind: "CreateOptions"}, FieldManager: "kubectl"}
				source := objectSource{a.Server}
				a.Clock = &hop.Clock{}
				a.Clock.Begin(time.Now())
				err := choose(Plugins(Config{Validating: source, Mutating: source, Authorizer: caseAuthorizer{a.Server},
					Types: types})).Admit(ctx, a)
				addSteps(t, steps, a.Clock, err)
				return describeDenial(err)
			}
		}
		return []kind.Plugin{
			{Name: MutatingName, Admit: with(func(m, _ kind.Plugin) kind.Plugin { return m }, false)},
			{Name: ValidatingName, Admit: with(func(_, v kind.Plugin) kind.Plugin { return v }, true)},
		}, nil
	}, widgets("v1"), widgets("v2"))
}

// addSteps counts the steps of a write's record by hop and detail. Every policy that matches is one, and one of them has failed
// if the write is denied.
func addSteps(t *testing.T, count map[string]int, c *hop.Clock, err error) {
	t.Helper()
	failed := false
	for _, s := range c.Record.Steps {
		count[s.Hop.String()+" "+s.Detail]++
		failed = failed || s.Failed
		if !strings.HasPrefix(s.Name, "policy ") || s.Took < 0 ||
			s.Failed != slices.Contains([]string{"denied", "failed", "failed, ignored"}, s.Detail) {
			t.Errorf("%+v", s)
		}
	}
	if err != nil && strings.Contains(err.Error(), "with binding") && !strings.Contains(err.Error(), "failed to configure") && !failed {
		t.Errorf("%v: no step has failed: %+v", err, c.Record.Steps)
	}
}

// describeDenial returns a denial with everything that a client sees of it.
func describeDenial(err error) error {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return err
	}
	text := fmt.Sprintf("%d %s: %s", status.ErrStatus.Code, status.ErrStatus.Reason, status.ErrStatus.Message)
	if d := status.ErrStatus.Details; d != nil {
		for _, c := range d.Causes {
			if !strings.HasSuffix(status.ErrStatus.Message, c.Message) {
				text += "\n  cause: " + c.Message
			}
		}
		if len(d.Causes) == 0 {
			text += "\n  no causes"
		}
	}
	return errors.New(text)
}

// typesOf returns the type converters of built-in kinds, and deduced ones for custom kinds.
func typesOf(t testing.TB) func(schema.GroupVersionKind) managedfields.TypeConverter {
	t.Helper()
	scheme, err := kinds.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	owner := fields.New(scheme, nil, nil)
	return func(gvk schema.GroupVersionKind) managedfields.TypeConverter {
		switch gvk.Group {
		case "example.com":
			return managedfields.NewDeducedTypeConverter()
		case "batch":
			return nil // as if the type were not known yet
		}
		return owner.TypeConverter(gvk)
	}
}

// widgets returns a version of a custom resource, whose objects are unstructured. The field "most" of v1 is "limit" in
// v2.
func widgets(version string) *kind.Def {
	d := kind.Define(kind.Resource[unstructured.Unstructured]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: version, Kind: "Widget"}, Plural: "widgets",
			Scope: kind.Namespaced,
		},
	})
	d.Convert = func(_ context.Context, o kind.Object, to schema.GroupVersion) (kind.Object, error) {
		u := o.(*unstructured.Unstructured).DeepCopy()
		if u.GetAPIVersion() == "example.com/v1" && to.Version == "v2" {
			maximum, _, _ := unstructured.NestedInt64(u.Object, "spec", "most")
			_ = unstructured.SetNestedMap(u.Object, map[string]any{"limit": maximum}, "spec")
		}
		u.SetGroupVersionKind(to.WithKind("Widget"))
		return u, nil
	}
	d.Default = func(o kind.Object) {
		spec, _, _ := unstructured.NestedMap(o.(*unstructured.Unstructured).Object, "spec")
		if spec != nil && spec["colour"] == nil {
			_ = unstructured.SetNestedField(o.(*unstructured.Unstructured).Object, "grey", "spec", "colour")
		}
	}
	return d
}

// objectSource is a Source of the policies in the cluster of a case.
type objectSource struct{ cluster kind.Server }

func (objectSource) Wait(context.Context) error { return nil }

func (objectSource) Generation() int64 { return 1 }

func (s objectSource) All(r schema.GroupResource) (iter.Seq[kind.Object], error) {
	return s.cluster.List(context.Background(), r, "")
}

// caseAuthorizer authorizes by the permissions of a case.
type caseAuthorizer struct{ cluster kind.Server }

func (d caseAuthorizer) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	status := d.cluster.ReviewAccess(ctx,
		authorizationv1.SubjectAccessReviewSpec{User: a.GetUser().GetName(), ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: a.GetNamespace(), Verb: a.GetVerb(), Group: a.GetAPIGroup(), Resource: a.GetResource(),
			Subresource: a.GetSubresource(),
			Name:        a.GetName(),
		}})
	if status.Allowed {
		return authorizer.DecisionAllow, "the case says so", nil
	}
	return authorizer.DecisionNoOpinion, "the case does not say so", nil
}
