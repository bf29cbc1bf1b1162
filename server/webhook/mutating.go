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

	"proa.dev/kinds/kind"
	"proa.dev/kinds/quantity"
	"proa.dev/server/match"
)

// maxPatched bounds the text of an object that a patch has changed.
const maxPatched = 16 << 20

// mutatingPlugin is the plugin of hop 4.
type mutatingPlugin struct {
	caller
	hooks index
}

// admit asks the webhooks that the write concerns one after the other; each sees what those before it have made of the object.
func (p *mutatingPlugin) admit(ctx context.Context, a *kind.Admission) error {
	if match.IsExempt(a) {
		return nil
	}
	hooks, err := p.hooks.current(ctx)
	if err != nil || len(hooks) == 0 {
		return err
	}
	r, rounds := newRequest(a, p.Authorizer), begin(a)
	defer rounds.end(a)
	ctx, cancel := context.WithDeadline(ctx, rounds.deadline)
	defer cancel()
	for i, h := range hooks {
		v, err := p.wanted(ctx, r, h)
		if err != nil {
			return err
		}
		if v == nil || !rounds.calls(h) {
			continue
		}
		if err := p.mutate(ctx, r, h, v, notes{a, rounds.round(), i, h}, rounds); err != nil {
			return err
		}
	}
	return nil
}

// mutate asks one webhook, and changes the object as it says.
func (p *mutatingPlugin) mutate(ctx context.Context, r *request, h *hook, v *versioned, n notes, rounds *rounds) error {
	begin := time.Now()
	o := &outcome{hook: h}
	changed := false
	if o.answer, o.err = p.call(ctx, r, h, v); o.err == nil {
		changed, o.err = p.apply(ctx, r, h, v, o, n)
	}
	n.mutation(changed)
	tell(r.Admission, o)
	p.settle(ctx, r.Admission, o, time.Since(begin))
	rounds.called(h, changed)
	if o.failedOpen {
		n.failedOpen()
	}
	if o.err == nil && ctx.Err() != nil {
		return errTimeout()
	}
	return o.err
}

// apply does to the object what the answer of a webhook says, and reports whether it is another one now.
func (p *mutatingPlugin) apply(ctx context.Context, r *request, h *hook, v *versioned, o *outcome, n notes) (changed bool, err error) {
	if !o.answer.Allowed {
		return false, &rejection{refusal(h.name, o.answer.Result)}
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

// patched returns the object that a patch makes of the one of a version.
func (r *request) patched(v *versioned, patch jsonpatch.Patch) (runtime.Object, error) {
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
	} else if err = quantity.InJSON(text, reflect.TypeOf(next)); err == nil {
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
