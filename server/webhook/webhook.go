// Package webhook calls admission webhooks: those of MutatingWebhookConfigurations in hop 4, those of
// ValidatingWebhookConfigurations in hop 6. It owns the list of webhooks, which it reads from the server's cache, the
// reviews that are sent to them, and what follows from their responses: a changed object, a denial, a warning, an audit
// annotation.
//
// Webhooks are not trusted: a response is limited in size, redirects are not followed, a webhook that does not respond
// costs its timeout and no more. Reviews and responses are never logged. A write in a cluster without webhooks costs
// two comparisons of numbers.
package webhook

import (
	"log/slog"
	"net/http"
	"net/url"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"proa.dev/kinds/kind"
	"proa.dev/server/extensionclient"
	"proa.dev/server/registrations"
)

// The names of the plugins.
const (
	MutatingName   = "MutatingAdmissionWebhook"
	ValidatingName = "ValidatingAdmissionWebhook"
)

// Source provides the webhook configurations from the server's cache.
type Source = registrations.Source

// Clients provides HTTP clients for webhooks.
type Clients interface {
	Client(e *extensionclient.Endpoint) (*http.Client, *url.URL, error)
}

// Config holds what the plugins need of the server.
type Config struct {
	// Mutating and Validating provide the configurations of each type.
	Mutating, Validating Source
	Clients              Clients
	// Authorizer answers the authorization checks of match conditions.
	Authorizer authorizer.UnconditionalAuthorizer
	// Metrics counts calls; nil for none.
	Metrics *Metrics
	Log     *slog.Logger
}

// Plugins returns the plugins of hop 4 and of hop 6.
func Plugins(c Config) (mutate, validate kind.Plugin) {
	if c.Metrics == nil {
		c.Metrics = NewMetrics()
	}
	compile := newConditionCompiler()
	m := &mutatingPlugin{caller{c, "admit"}, newIndex(reader{c.Mutating, MutatingConfigurations(), compile})}
	v := &validatingPlugin{caller{c, "validating"}, newIndex(reader{c.Validating, ValidatingConfigurations(), compile})}
	return kind.Plugin{Name: MutatingName, Admit: m.admit}, kind.Plugin{Name: ValidatingName, Admit: v.admit}
}
