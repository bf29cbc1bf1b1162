package webhook

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/kinds/kind"
	"proa.dev/server/match"
)

// validatingPlugin is the plugin of hop 6.
type validatingPlugin struct {
	caller
	hooks index
}

// admit asks all webhooks that the write concerns, at the same time. What the first of them refuses, in their order, is refused.
func (p *validatingPlugin) admit(ctx context.Context, a *kind.Admission) error {
	if match.IsExempt(a) {
		return nil
	}
	hooks, err := p.hooks.current(ctx)
	if err != nil || len(hooks) == 0 {
		return err
	}
	r := newRequest(a, p.Authorizer)
	var calls []*outcome
	var forms []*versioned
	for _, h := range hooks {
		v, err := p.wanted(ctx, r, h)
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
		tell(a, o)
		if o.failedOpen {
			a.Note(fmt.Sprintf("failed-open.validating.webhook.admission.k8s.io/round_0_index_%d", i), o.hook.name)
		}
		if err == nil {
			err = o.err
		}
	}
	return err
}

// validate asks one webhook. A panic is an error here: nobody above this goroutine would catch it.
func (p *validatingPlugin) validate(ctx context.Context, r *request, o *outcome, v *versioned) {
	begin := time.Now()
	defer func() {
		if fault := recover(); fault != nil {
			o.err = apierrors.NewInternalError(fmt.Errorf("ValidatingAdmissionWebhook/%v has panicked: %v", o.hook.name, fault))
		}
	}()
	if o.answer, o.err = p.call(ctx, r, o.hook, v); o.err == nil && !o.answer.Allowed {
		o.err = &rejection{refusal(o.hook.name, o.answer.Result)}
	}
	p.settle(ctx, r.Admission, o, time.Since(begin))
}
