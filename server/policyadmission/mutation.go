package policyadmission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"

	celgo "github.com/google/cel-go/cel"
	celtypes "github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/traits"
	admissionrequest "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	celmutation "k8s.io/apiserver/pkg/cel/mutation"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/patchcost"
	"proa.dev/kinds/lib/quantity"
	"proa.dev/server/admissionmatch"
	"proa.dev/server/celenv"
	"proa.dev/server/objectversion"
)

// mutation is a compiled MutatingAdmissionPolicy.
type mutation struct {
	conditions matchconditions.Matcher // nil: every write
	patches    []patch.Patcher         // in the order in which they are applied
	reinvoke   bool                    // its reinvocation policy is IfNeeded
	compiler   *cel.CompositedCompiler
	err        error // why the policy cannot be evaluated at all
}

func readMutatingPolicy(o kind.Object) *policy[*mutation] {
	p, ok := o.(*admissionv1.MutatingAdmissionPolicy)
	if !ok {
		return nil
	}
	return &policy[*mutation]{
		revision: revisionOf(&p.ObjectMeta), name: p.Name, paramKind: p.Spec.ParamKind,
		criteria: admissionmatch.ForPolicy(p.Spec.MatchConstraints),
		failure:  failurePolicy(p.Spec.FailurePolicy), program: sync.OnceValue(func() *mutation { return compileMutation(p) }),
	}
}

func readMutatingBinding(o kind.Object) *binding {
	b, ok := o.(*admissionv1.MutatingAdmissionPolicyBinding)
	if !ok {
		return nil
	}
	return &binding{name: b.Name, policy: b.Spec.PolicyName, criteria: criteriaOf(b.Spec.MatchResources), params: b.Spec.ParamRef}
}

// compileMutation compiles all expressions of a policy. An invalid one is an error when it is evaluated.
func compileMutation(p *admissionv1.MutatingAdmissionPolicy) *mutation {
	s := &p.Spec
	m := &mutation{reinvoke: s.ReinvocationPolicy == admissionv1.IfNeededReinvocationPolicy}
	known := cel.OptionalVariableDeclarations{HasParams: s.ParamKind != nil, HasAuthorizer: true}
	if m.compiler, m.err = newCompiler(s.Variables, known); m.err != nil {
		return m
	}
	m.conditions = compileConditions(m.compiler, s.MatchConditions, known, s.FailurePolicy, p.Name)
	known.HasPatchTypes = true
	compile := func(text string, returns *celgo.Type) cel.MutatingEvaluator {
		return evaluator{m.compiler.CompileMutatingEvaluator(&expression{text: text, returns: []*celgo.Type{returns}}, known,
			environment.StoredExpressions)}
	}
	for _, one := range s.Mutations {
		switch {
		case one.PatchType == admissionv1.PatchTypeJSONPatch && one.JSONPatch != nil:
			m.patches = append(m.patches, patch.NewJSONPatcher(compile(one.JSONPatch.Expression,
				celgo.ListType(celgo.ObjectType("JSONPatch")))))
		case one.PatchType == admissionv1.PatchTypeApplyConfiguration && one.ApplyConfiguration != nil:
			m.patches = append(m.patches, patch.NewApplyConfigurationPatcher(compile(one.ApplyConfiguration.Expression,
				celgo.ObjectType("Object"))))
		}
	}
	return m
}

// evaluator refuses patches that are too large to convert: a value may be in a list any number of times.
type evaluator struct{ cel.MutatingEvaluator }

func (e evaluator) ForInput(ctx context.Context, object *admission.VersionedAttributes, asked *admissionrequest.AdmissionRequest,
	optional cel.OptionalVariableBindings, namespace *corev1.Namespace, budget int64) (cel.EvaluationResult, int64, error) {
	result, left, err := e.MutatingEvaluator.ForInput(ctx, object, asked, optional, namespace, budget)
	if err != nil || result.Error != nil || result.EvalResult == nil {
		return result, left, err
	}
	if celenv.IsTooLarge(result.EvalResult) {
		result.Error = errors.New("the patch has too many values")
	} else if ops, ok := result.EvalResult.(traits.Lister); ok && copiesTooMuch(ops, object.VersionedObject.Object()) {
		result.Error = errors.New("the patch has too many operations on list items for an object of this size")
	}
	return result, left, err
}

// copiesTooMuch reports whether a JSON patch, as CEL has it, takes too long to apply.
func copiesTooMuch(ops traits.Lister, object any) bool {
	shifts := 0
	for it := ops.Iterator(); it.HasNext() == celtypes.True; {
		if op, ok := it.Next().(*celmutation.JSONPatchVal); ok {
			shifts += patchcost.Shifts(op.Op, op.Path, op.From)
		}
	}
	if shifts < 64 {
		return false
	}
	doc, err := json.Marshal(object)
	return err == nil && patchcost.Exceeds(shifts, doc)
}

// apply applies one patch to the object of a write in the version of a target, and sets defaults again. ctx has the
// variables of the policy.
func (r *request) apply(ctx context.Context, p patch.Patcher, in input, t target, types managedfields.TypeConverter) error {
	if types == nil {
		const text = "Resource kind %s not found. " +
			"There can be a delay between when CustomResourceDefinitions are created and when they are available."
		return apierrors.NewServiceUnavailable(fmt.Sprintf(text, t.kind))
	}
	patched, err := p.Patch(ctx, patch.Request{
		MatchedResource: in.resource, VersionedAttributes: in.object, ObjectInterfaces: objects{r, t}, Namespace: in.namespace,
		TypeConverter:     types,
		OptionalVariables: cel.OptionalVariableBindings{VersionedParams: in.params, Authorizer: in.authorizer},
	}, celconfig.RuntimeCELCostBudget)
	if err != nil {
		return err
	}
	current := in.object.VersionedObject.Object()
	if patched == current { // a test operation of a JSON patch has failed: nothing is changed
		patched = current.DeepCopyObject()
	}
	next, err := r.toTyped(patched, current, t)
	if err != nil {
		return err
	}
	if err := r.Complete(next, t.def); err != nil {
		return apierrors.NewInternalError(err)
	}
	in.object.UpdateObject(next)
	return nil
}

// toTyped converts the result of a patch to the type of the object before it: apply configurations produce unstructured
// objects of all kinds.
func (r *request) toTyped(patched, before runtime.Object, t target) (kind.Object, error) {
	if b, ok := patched.(*bounded); ok {
		patched = b.Object
	}
	u, free := patched.(*unstructured.Unstructured)
	if _, custom := before.(*unstructured.Unstructured); !free || custom {
		obj, ok := patched.(kind.Object)
		if !ok {
			return nil, fmt.Errorf("unexpected type %T", patched)
		}
		return objectversion.WithKind(obj, t.kind), nil
	}
	obj := r.NewObject(t.def)
	if err := quantity.CheckValue(u.Object, reflect.TypeOf(obj)); err != nil {
		return nil, fmt.Errorf("unable to convert unstructured object to %v: %w", t.kind, err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, obj); err != nil {
		return nil, fmt.Errorf("unable to convert unstructured object to %v: %w", t.kind, err)
	}
	obj.GetObjectKind().SetGroupVersionKind(t.kind)
	return obj, nil
}

// storePatched makes the patched object of a target the object of the write. Other versions of it are made again when
// they are needed.
func (r *request) storePatched(ctx context.Context, v *admission.VersionedAttributes, t target) error {
	obj, ok := v.VersionedObject.Object().(kind.Object)
	if !ok {
		return apierrors.NewInternalError(fmt.Errorf("failed to convert object: unexpected type %T", v.VersionedObject.Object()))
	}
	if err := r.Store(ctx, obj, t.def); err != nil {
		return apierrors.NewInternalError(fmt.Errorf("failed to convert object: %w", err))
	}
	v.Dirty = false
	clear(r.versions)
	r.versions[t.kind] = v
	return nil
}
