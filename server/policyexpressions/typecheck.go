package policyexpressions

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	celgo "github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	apicel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"proa.dev/kinds/admissionregistration"
)

// Types is what is known about the objects that policies match.
type Types struct {
	// Kinds returns the kinds of a resource; none where there is no such resource.
	Kinds func(schema.GroupVersionResource) []schema.GroupVersionKind
	// Schema returns the schema of a kind, without references; nil where there is none.
	Schema func(context.Context, schema.GroupVersionKind) (*spec.Schema, error)
}

// maxKinds is the number of kinds of one rule that are checked.
const maxKinds = 10

// TypeCheck returns warnings about expressions of a policy that do not fit the schemas of the objects. The policy works
// all the same: an expression may guard against missing fields, and a schema may be incomplete. Kinds that rules match
// only by wildcard, and those without a schema, are not checked.
func TypeCheck(ctx context.Context, p *admissionv1.ValidatingAdmissionPolicy, types Types) ([]admissionv1.ExpressionWarning, error) {
	checkers, err := checkersOf(ctx, p, types)
	if err != nil {
		return nil, err
	}
	var out []admissionv1.ExpressionWarning
	check := func(field, text string) {
		var found []string
		for _, c := range checkers {
			if fault := c.check(text); fault != "" {
				found = append(found, fault)
			}
		}
		if len(found) > 0 {
			out = append(out, admissionv1.ExpressionWarning{FieldRef: field, Warning: strings.Join(found, "\n")})
		}
	}
	for i, v := range p.Spec.Validations {
		at := fmt.Sprintf("spec.validations[%d].", i)
		check(at+"expression", v.Expression)
		if v.MessageExpression != "" {
			check(at+"messageExpression", v.MessageExpression)
		}
		if ctx.Err() != nil { // there may be many
			return nil, ctx.Err()
		}
	}
	return out, nil
}

// checkersOf returns a checker for each kind that a policy names.
func checkersOf(ctx context.Context, p *admissionv1.ValidatingAdmissionPolicy, types Types) ([]checker, error) {
	if p.Spec.MatchConstraints == nil {
		return nil, nil
	}
	names := []celgo.EnvOption{celgo.Variable(cel.AuthorizerVarName, library.AuthorizerType)}
	var params *apicel.DeclType
	if k, ok := paramKind(p.Spec.ParamKind); ok {
		s, err := types.Schema(ctx, k)
		if err != nil {
			return nil, err
		}
		params = declType(s, k.Kind+"2")
		names = append(names, variable(cel.ParamsVarName, params))
	}
	var out []checker
	for _, k := range kindsOf(p.Spec.MatchConstraints.ResourceRules, types.Kinds) {
		s, err := types.Schema(ctx, k)
		if err != nil {
			return nil, err
		}
		if s == nil {
			continue
		}
		c, err := newChecker(k, declType(s, k.Kind+"1"), params, names)
		if err != nil {
			return nil, err
		}
		for _, v := range p.Spec.Variables {
			c.compiler.CompileAndStoreVariable(expression{Use: admissionregistration.Variable, Name: v.Name, Text: v.Expression},
				cel.OptionalVariableDeclarations{}, environment.StoredExpressions)
		}
		out = append(out, c)
	}
	return out, nil
}

// paramKind returns the kind of the parameters, if there are any.
func paramKind(k *admissionv1.ParamKind) (schema.GroupVersionKind, bool) {
	if k == nil {
		return schema.GroupVersionKind{}, false
	}
	gv, err := schema.ParseGroupVersion(k.APIVersion)
	return gv.WithKind(k.Kind), err == nil
}

// kindsOf returns the kinds that rules name, sorted. It stops at a rule that has too many.
func kindsOf(rules []admissionv1.NamedRuleWithOperations,
	kinds func(schema.GroupVersionResource) []schema.GroupVersionKind) []schema.GroupVersionKind {
	found := map[schema.GroupVersionKind]bool{}
	for i := range rules {
		left := maxKinds
		for r := range resourcesOf(&rules[i].Rule) {
			ks := kinds(r)
			ks = ks[:min(left, len(ks))]
			for _, k := range ks {
				found[k] = true
			}
			if left -= len(ks); left == 0 {
				return sorted(found)
			}
		}
	}
	return sorted(found)
}

func sorted(kinds map[schema.GroupVersionKind]bool) []schema.GroupVersionKind {
	return slices.SortedFunc(maps.Keys(kinds), func(a, b schema.GroupVersionKind) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Version, b.Version), strings.Compare(a.Kind, b.Kind))
	})
}

// resourcesOf returns the resources of a rule, sorted. Wildcards and subresources are not names of resources, so they
// have no kinds.
func resourcesOf(r *admissionv1.Rule) iter.Seq[schema.GroupVersionResource] {
	return func(yield func(schema.GroupVersionResource) bool) {
		for _, g := range slices.Sorted(slices.Values(r.APIGroups)) {
			for _, v := range slices.Sorted(slices.Values(r.APIVersions)) {
				for _, name := range slices.Sorted(slices.Values(r.Resources)) {
					if !yield(schema.GroupVersionResource{Group: g, Version: v, Resource: name}) {
						return
					}
				}
			}
		}
	}
}

// declType returns the CEL type of a schema, or nil where the schema has no type. name appears in messages. Upstream's
// name ends in the nanosecond of the check; it is enough that the types of objects and parameters differ even when
// their kind is the same.
func declType(s *spec.Schema, name string) *apicel.DeclType {
	if s == nil {
		return nil
	}
	t := common.SchemaDeclType(&openapi.Schema{Schema: s}, true)
	if t == nil {
		return nil
	}
	return t.MaybeAssignTypeName(name)
}

// variable declares a variable, of any type if t is nil.
func variable(name string, t *apicel.DeclType) celgo.EnvOption {
	if t == nil {
		return celgo.Variable(name, celgo.DynType)
	}
	return celgo.Variable(name, t.CelType())
}

// checker checks expressions about objects of one kind. It knows the types of the policy's variables, and only checks
// types.
type checker struct {
	kind     schema.GroupVersionKind
	compiler *cel.CompositedCompiler
}

func newChecker(k schema.GroupVersionKind, object, params *apicel.DeclType, names []celgo.EnvOption) (checker, error) {
	request, namespace := cel.BuildRequestType(), cel.BuildNamespaceType()
	env, err := base().Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions: append(slices.Clone(names),
			variable(cel.NamespaceVarName, namespace), variable(cel.RequestVarName, request),
			variable(cel.ObjectVarName, object), variable(cel.OldObjectVarName, object)),
		DeclTypes: slices.DeleteFunc([]*apicel.DeclType{namespace, request, object, params},
			func(t *apicel.DeclType) bool { return t == nil }),
	})
	if err != nil {
		return checker{}, fmt.Errorf("types of %s: %w", k.Kind, err)
	}
	c := checker{kind: k}
	if c.compiler, err = cel.NewCompositedCompilerForTypeChecking(env); err != nil {
		return checker{}, fmt.Errorf("types of %s: %w", k.Kind, err)
	}
	c.compiler.Compiler = typeCompiler{c.compiler.Env}
	return c, nil
}

// check returns what is wrong with an expression, or "".
func (c checker) check(text string) string {
	e := expression{Use: admissionregistration.Variable, Text: text}
	switch err := c.compiler.CompileCELExpression(e, cel.OptionalVariableDeclarations{}, environment.StoredExpressions).Error; {
	case err == nil:
		return ""
	case err.Type == apicel.ErrorTypeInvalid:
		return fmt.Sprintf("%v: %s\n", c.kind, err)
	default:
		return fmt.Sprintf("%v: type checking error: %v\n", c.kind, err)
	}
}

// typeCompiler compiles expressions only as far as their types, and accepts any type of the result.
type typeCompiler struct {
	env func(environment.Type) (*celgo.Env, error)
}

// CompileCELExpression returns the type of an expression, or what is wrong with it. The environment has all variables
// already.
func (t typeCompiler) CompileCELExpression(e cel.ExpressionAccessor, _ cel.OptionalVariableDeclarations,
	known environment.Type) cel.CompilationResult {
	env, err := t.env(known)
	if err != nil {
		return cel.CompilationResult{ExpressionAccessor: e,
			Error: &apicel.Error{Type: apicel.ErrorTypeInternal, Detail: fmt.Sprintf("fail to build env: %v", err)}}
	}
	ast, issues := env.Compile(e.GetExpression())
	if issues != nil {
		return cel.CompilationResult{ExpressionAccessor: e, Error: &apicel.Error{Type: apicel.ErrorTypeInvalid, Detail: issues.String()}}
	}
	return cel.CompilationResult{ExpressionAccessor: e, OutputType: ast.OutputType()}
}
