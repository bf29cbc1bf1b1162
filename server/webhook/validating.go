package webhook

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/server/admissionmatch"
	"proa.dev/server/registrations"
)

// validatingPlugin is the plugin of hop 6.
type validatingPlugin struct {
	caller
	hooks registrations.Index[hooks]
}

// admit calls all matching webhooks concurrently. The first denial, in the order of the webhooks, rejects the write.
func (p *validatingPlugin) admit(ctx context.Context, a *kind.Admission) error {
	if admissionmatch.IsExempt(a) {
		return nil
	}
	all, err := p.hooks.Current(ctx)
	if err != nil || len(all.list) == 0 {
		return err
	}
	r := newRequest(a, p.Authorizer)
	var calls []*outcome
	var forms []*versioned
	for _, h := range all.list {
		v, err := p.versionFor(ctx, r, h)
		if err != nil {
			return err
		}
		if v != nil {
			calls, forms = append(calls, &outcome{hook: h}), append(forms, v)
		}
	}
	if len(calls) == 0 {
		return nil
	}
	if ctx.Err() != nil {
		return errTimeout()
	}
	var wg sync.WaitGroup
	for i, o := range calls {
		wg.Go(func() { p.validate(ctx, r, o, forms[i]) })
	}
	wg.Wait()
	for i, o := range calls {
		addToWrite(a, o)
		a.Clock.AddStep(o.step(hop.Validate))
		if o.failedOpen {
			a.AddAuditAnnotation(fmt.Sprintf("failed-open.validating.webhook.admission.k8s.io/round_0_index_%d", i), o.hook.name)
		}
		if err == nil {
			err = o.err
		}
	}
	return err
}

// validate calls one webhook. It turns a panic into an error, because nobody above this goroutine would recover it.
func (p *validatingPlugin) validate(ctx context.Context, r *request, o *outcome, v *versioned) {
	begin := time.Now()
	o.after = r.Clock.Elapsed()
	defer func() {
		if fault := recover(); fault != nil {
			o.err = apierrors.NewInternalError(fmt.Errorf("ValidatingAdmissionWebhook/%v has panicked: %v", o.hook.name, fault))
		}
	}()
	if o.answer, o.err = p.call(ctx, r, o.hook, v); o.err == nil && !o.answer.Allowed {
		o.err = &rejection{denial(o.hook.name, o.answer.Result)}
	}
	p.settle(ctx, r.Admission, o, time.Since(begin))
}
