package webhook

import (
	"fmt"
	"time"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"

	"proa.dev/kinds/kind"
	"proa.dev/server/admissionmatch"
	"proa.dev/server/extensionclient"
	"proa.dev/server/registrations"
)

// MutatingConfigurations returns the resource of MutatingWebhookConfigurations.
func MutatingConfigurations() schema.GroupResource {
	return schema.GroupResource{Group: admissionregv1.GroupName, Resource: "mutatingwebhookconfigurations"}
}

// ValidatingConfigurations returns the resource of ValidatingWebhookConfigurations.
func ValidatingConfigurations() schema.GroupResource {
	return schema.GroupResource{Group: admissionregv1.GroupName, Resource: "validatingwebhookconfigurations"}
}

// hook is one webhook of a configuration, ready to be matched and called. It is immutable.
type hook struct {
	// id stays the same as long as the configuration has this webhook at this place.
	id, name, configuration string
	criteria                *admissionmatch.Criteria
	// conditions compiles the match conditions when it is first called; nil when there are none.
	conditions func() matchconditions.Matcher
	endpoint   extensionclient.Endpoint
	ignore     bool // its failurePolicy is Ignore
	effects    *admissionregv1.SideEffectClass
	timeout    time.Duration // 0 for that of the request
	versions   []string
	reinvoke   bool // its reinvocationPolicy is IfNeeded
}

// configuration is the list of webhooks of one configuration object.
type configuration struct {
	uid        types.UID
	generation int64
	hooks      []*hook
}

// hooks are all webhooks of one type. They are immutable.
type hooks struct {
	byName map[string]*configuration
	list   []*hook // in the order in which they are called
}

// reader makes webhooks of the configurations of one type.
type reader struct {
	source   Source
	resource schema.GroupResource
	compile  conditionCompiler
}

// newIndex returns the index of the webhooks of one type.
func newIndex(r reader) registrations.Index[hooks] {
	return registrations.Index[hooks]{Source: r.source, Build: r.build}
}

// build reads the configurations. Those that have not changed are reused.
func (x reader) build(last hooks) (hooks, error) {
	next := hooks{byName: map[string]*configuration{}}
	all, err := x.source.All(x.resource)
	if err != nil {
		err = apierrors.NewInternalError(err)
	}
	for o := range all {
		c := last.byName[o.GetName()]
		if c == nil || c.uid != o.GetUID() || c.generation != o.GetGeneration() {
			c = &configuration{o.GetUID(), o.GetGeneration(), x.hooksOf(o)}
		}
		next.byName[o.GetName()] = c
		next.list = append(next.list, c.hooks...)
	}
	return next, err
}

// hooksOf returns the webhooks of a configuration.
func (x reader) hooksOf(o kind.Object) (out []*hook) {
	switch c := o.(type) {
	case *admissionregv1.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			w := &c.Webhooks[i]
			out = append(out, x.newHook(c.Name, &admissionregv1.ValidatingWebhook{
				Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
				NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects,
				TimeoutSeconds:          w.TimeoutSeconds,
				AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
			}))
			out[i].reinvoke = w.ReinvocationPolicy != nil && *w.ReinvocationPolicy == admissionregv1.IfNeededReinvocationPolicy
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

// newHook returns one webhook. A mutating one is passed as a validating one, which has all fields that are needed here.
func (x reader) newHook(configuration string, w *admissionregv1.ValidatingWebhook) *hook {
	h := &hook{
		name: w.Name, configuration: configuration, effects: w.SideEffects, versions: w.AdmissionReviewVersions,
		criteria:   admissionmatch.ForWebhook(w.Rules, w.MatchPolicy, w.NamespaceSelector, w.ObjectSelector),
		conditions: x.compile(w.MatchConditions, w.FailurePolicy, w.Name),
		endpoint: extensionclient.WebhookEndpoint(w.ClientConfig.URL, (*extensionclient.ServiceReference)(w.ClientConfig.Service),
			w.ClientConfig.CABundle),
		ignore: w.FailurePolicy != nil && *w.FailurePolicy == admissionregv1.Ignore,
	}
	if w.TimeoutSeconds != nil {
		h.timeout = time.Duration(*w.TimeoutSeconds) * time.Second
	}
	return h
}
