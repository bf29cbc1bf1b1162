// Package webhook calls admission webhooks: those of MutatingWebhookConfigurations in hop 4, those of ValidatingWebhookConfigurations in
// hop 6. It owns which webhooks there are, by the server's cache, what they are asked, and what follows from their answers: a changed
// object, a refusal, a warning, an audit annotation.
//
// Nobody is believed: an answer is bounded in size, a redirect is not followed, a webhook that does not answer costs its timeout and no more. What is
// sent and what is answered is never logged. A write in a cluster without webhooks costs two numbers that are compared.
package webhook

import (
	"context"
	"iter"
	"log/slog"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"proa.dev/kinds/kind"
	"proa.dev/server/extension"
)

// The names of the plugins.
const (
	MutatingName   = "MutatingAdmissionWebhook"
	ValidatingName = "ValidatingAdmissionWebhook"
)

// Source shows webhook configurations as the server's cache has them.
type Source interface {
	// Wait returns when the configurations are loaded.
	Wait(ctx context.Context) error
	// Generation changes with every change of a configuration.
	Generation() int64
	// All yields the objects of a resource in the order of their names. If some of them cannot be decoded it returns an error as well.
	All(resource schema.GroupResource) (iter.Seq[kind.Object], error)
}

// Clients are the ways to webhooks.
type Clients interface {
	Client(e *extension.Endpoint) (*http.Client, *url.URL, error)
}

// Config is what the plugins need of the server.
type Config struct {
	// Mutating and Validating show the configurations of each sort.
	Mutating, Validating Source
	Clients              Clients
	// Authorizer answers the questions of match conditions.
	Authorizer authorizer.UnconditionalAuthorizer
	// Metrics counts calls; nil for nobody.
	Metrics *Metrics
	Log     *slog.Logger
}

// Plugins returns the two plugins, that of hop 4 and that of hop 6.
func Plugins(c Config) (mutating, validating kind.Plugin) {
	if c.Metrics == nil {
		c.Metrics = NewMetrics()
	}
	compile := newConditionCompiler()
	m := &mutatingPlugin{caller{c, "admit"}, index{source: c.Mutating, resource: MutatingConfigurations(), compile: compile}}
	v := &validatingPlugin{caller{c, "validating"}, index{source: c.Validating, resource: ValidatingConfigurations(), compile: compile}}
	return kind.Plugin{Name: MutatingName, Admit: m.admit}, kind.Plugin{Name: ValidatingName, Admit: v.admit}
}
