package webhook

import (
	"context"
	"fmt"
	"reflect"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/patchcost"
	"proa.dev/kinds/lib/quantity"
	"proa.dev/server/admissionmatch"
	"proa.dev/server/registrations"
)

// maxPatched is the size of the largest object that a patch may produce, as JSON.
const maxPatched = 16 << 20

// mutatingPlugin is the plugin of hop 4.
type mutatingPlugin struct {
	caller
	hooks registrations.Index[hooks]
}

// admit calls the matching webhooks one after the other; each sees the object as those before it have changed it.
func (p *mutatingPlugin) admit(ctx context.Context, a *kind.Admission) error {
	if admissionmatch.IsExempt(a) {
		return nil
	}
	all, err := p.hooks.Current(ctx)
	if err != nil || len(all.list) == 0 {
		return err
	}
	r, rounds := newRequest(a, p.Authorizer), beginRound(a)
	defer rounds.end(a)
	ctx, cancel := context.WithDeadline(ctx, rounds.deadline)
	defer cancel()
	for i, h := range all.list {
		v, err := p.versionFor(ctx, r, h)
		if err != nil {
			return err
		}
		if v == nil || !rounds.shouldCall(h) {
			continue
		}
		if err := p.mutate(ctx, r, h, v, notes{a, rounds.round(), i, h}, rounds); err != nil {
			return err
		}
	}
	return nil
}

// mutate calls one webhook, and applies its patch.
func (p *mutatingPlugin) mutate(ctx context.Context, r *request, h *hook, v *versioned, n notes, rounds *rounds) error {
	begin := time.Now()
	o := &outcome{hook: h, after: r.Clock.Elapsed()}
	changed := false
	if o.answer, o.err = p.call(ctx, r, h, v); o.err == nil {
		changed, o.err = p.apply(ctx, r, h, v, o, n)
	}
	n.mutation(changed)
	addToWrite(r.Admission, o)
	p.settle(ctx, r.Admission, o, time.Since(begin))
	if changed {
		o.detail = "changed the object"
	}
	r.Clock.AddStep(o.step(hop.Mutate))
	rounds.recordCall(h, changed)
	if o.failedOpen {
		n.failedOpen()
	}
	if o.err == nil && ctx.Err() != nil {
		return errTimeout()
	}
	return o.err
}

// apply applies the response of a webhook to the object, and reports whether that has changed it.
func (p *mutatingPlugin) apply(ctx context.Context, r *request, h *hook, v *versioned, o *outcome, n notes) (changed bool, err error) {
	if !o.answer.Allowed {
		return false, &rejection{denial(h.name, o.answer.Result)}
	}
	patch, err := readPatch(o.answer)
	if err != nil {
		return false, &callError{hook: h.name, reason: err, code: 503, quotes: true}
	}
	if len(patch) == 0 {
		return false, nil
	}
	if r.Object == nil && r.Connect == nil {
		return false, apierrors.NewInternalError(fmt.Errorf("admission webhook %q attempted to modify the object, which is not supported for this operation", h.name))
	}
	next, err := r.patched(v, patch)
	if err != nil {
		return false, &failure{apierrors.NewInternalError(err), fmt.Sprintf("the patch of webhook %q cannot be applied", h.name)}
	}
	changed = !equality.Semantic.DeepEqual(v.object, next)
	n.patch(patch)
	if err := r.complete(next, v); err != nil {
		return false, &failure{apierrors.NewInternalError(err), fmt.Sprintf("what webhook %q makes of the object is no object", h.name)}
	}
	if err := r.store(ctx, next, v); err != nil {
		return false, &failure{apierrors.NewInternalError(err), fmt.Sprintf("what webhook %q makes of the object cannot be stored", h.name)}
	}
	return changed, nil
}

// patched returns the object that results from a patch.
func (r *request) patched(v *versioned, patch jsonpatch.Patch) (runtime.Object, error) {
	shifts := 0
	for _, op := range patch {
		path, err := op.Path()
		if err != nil {
			return nil, err
		}
		from, _ := op.From() // most operations have none
		shifts += patchcost.Shifts(op.Kind(), path, from)
	}
	if patchcost.Exceeds(shifts, v.objectJSON) {
		return nil, fmt.Errorf("the patch has too many operations on list items for an object of this size")
	}
	text, err := patch.Apply(v.objectJSON)
	if err != nil {
		return nil, err
	}
	if len(text) > maxPatched {
		return nil, fmt.Errorf("the patched object has %d bytes, %d are allowed", len(text), maxPatched)
	}
	next := r.newObject(v)
	if u, ok := next.(*unstructured.Unstructured); ok {
		err = u.UnmarshalJSON(text)
	} else if err = quantity.CheckJSON(text, reflect.TypeOf(next)); err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, next)
	}
	if err != nil {
		return nil, err
	}
	if is := next.GetObjectKind().GroupVersionKind(); is != v.kind {
		return nil, fmt.Errorf("the patch makes a %s of a %s", is, v.kind)
	}
	return next, nil
}
