package webhook

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"

	"proa.dev/kinds/kind"
	"proa.dev/server/extension"
	"proa.dev/server/match"
)

// MutatingConfigurations are the MutatingWebhookConfigurations.
func MutatingConfigurations() schema.GroupResource {
	return schema.GroupResource{Group: admissionregv1.GroupName, Resource: "mutatingwebhookconfigurations"}
}

// ValidatingConfigurations are the ValidatingWebhookConfigurations.
func ValidatingConfigurations() schema.GroupResource {
	return schema.GroupResource{Group: admissionregv1.GroupName, Resource: "validatingwebhookconfigurations"}
}

// hook is one webhook of a configuration, ready to be matched and called. It is immutable.
type hook struct {
	// id is the same one as long as the configuration has this webhook at this place.
	id, name, configuration string
	criteria                *match.Criteria
	// conditions compiles the match conditions when it is first called; nil when there are none.
	conditions func() matchconditions.Matcher
	endpoint   extension.Endpoint
	ignore     bool // its failures are ignored
	effects    *admissionregv1.SideEffectClass
	timeout    time.Duration // 0 for that of the request
	versions   []string
	again      bool // it is called again when another one has changed the object after it
}

// configuration is the webhooks of one object.
type configuration struct {
	uid        types.UID
	generation int64
	hooks      []*hook
}

// index finds the webhooks of one sort. It is safe for concurrent use.
type index struct {
	source   Source
	resource schema.GroupResource
	compile  conditionCompiler

	now      atomic.Pointer[state]
	building sync.Mutex // building lets one goroutine at a time make a new state
}

// state is the webhooks of one generation. It never changes.
type state struct {
	generation int64
	by         map[string]*configuration
	hooks      []*hook // in the order in which they are called
	// err says that a configuration cannot be read. It must not be taken for one that is not there, so writes are refused.
	err error
}

// current returns the webhooks that there are now. An error means that some of them are not known.
func (x *index) current(ctx context.Context) ([]*hook, error) {
	s := x.now.Load()
	if s == nil || s.err != nil || s.generation != x.source.Generation() {
		var err error
		if s, err = x.rebuild(ctx); err != nil {
			return nil, err
		}
	}
	if s.err != nil {
		return nil, apierrors.NewInternalError(s.err)
	}
	return s.hooks, nil
}

// rebuild reads the configurations again. Those that have not changed stay as they are.
func (x *index) rebuild(ctx context.Context) (*state, error) {
	x.building.Lock()
	defer x.building.Unlock()
	last := x.now.Load()
	if last == nil {
		if err := x.source.Wait(ctx); err != nil {
			return nil, err
		}
		last = &state{generation: -1}
	}
	// The generation is read before the objects: what is filed under it is never older than it.
	next := &state{generation: x.source.Generation(), by: map[string]*configuration{}}
	if next.generation == last.generation && last.err == nil {
		return last, nil
	}
	all, err := x.source.All(x.resource)
	next.err = err
	for o := range all {
		c := last.by[o.GetName()]
		if c == nil || c.uid != o.GetUID() || c.generation != o.GetGeneration() {
			c = &configuration{o.GetUID(), o.GetGeneration(), x.read(o)}
		}
		next.by[o.GetName()] = c
		next.hooks = append(next.hooks, c.hooks...)
	}
	x.now.Store(next)
	return next, nil
}

// read makes the webhooks of a configuration.
func (x *index) read(o kind.Object) (out []*hook) {
	switch c := o.(type) {
	case *admissionregv1.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			w := &c.Webhooks[i]
			out = append(out, x.newHook(c.Name, &admissionregv1.ValidatingWebhook{
				Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
				NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects, TimeoutSeconds: w.TimeoutSeconds,
				AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
			}))
			out[i].again = w.ReinvocationPolicy != nil && *w.ReinvocationPolicy == admissionregv1.IfNeededReinvocationPolicy
		}
	case *admissionregv1.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			out = append(out, x.newHook(c.Name, &c.Webhooks[i]))
		}
	}
	seen := map[string]int{}
	for _, h := range out {
		h.id = fmt.Sprintf("%s/%s/%d", h.configuration, h.name, seen[h.name])
		seen[h.name]++
	}
	return out
}

// newHook makes one webhook. Both sorts have what it needs.
func (x *index) newHook(configuration string, w *admissionregv1.ValidatingWebhook) *hook {
	h := &hook{
		name: w.Name, configuration: configuration, effects: w.SideEffects, versions: w.AdmissionReviewVersions,
		criteria:   match.ForWebhook(w.Rules, w.MatchPolicy, w.NamespaceSelector, w.ObjectSelector),
		conditions: x.compile(w.MatchConditions, w.FailurePolicy, w.Name),
		endpoint:   extension.WebhookEndpoint(w.ClientConfig.URL, (*extension.ServiceReference)(w.ClientConfig.Service), w.ClientConfig.CABundle),
		ignore:     w.FailurePolicy != nil && *w.FailurePolicy == admissionregv1.Ignore,
	}
	if w.TimeoutSeconds != nil {
		h.timeout = time.Duration(*w.TimeoutSeconds) * time.Second
	}
	return h
}
