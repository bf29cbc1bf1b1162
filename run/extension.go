package run

import (
	"proa.dev/kinds/kind"
	"proa.dev/server"
	"proa.dev/server/authz"
	"proa.dev/server/extension"
	"proa.dev/server/webhook"
)

// openExtensions makes the ways to webhooks. They see no certificate of the server, as upstream's do not unless they are told to.
func (s *Server) openExtensions() *extension.Clients {
	return extension.New(extension.Config{Resolve: extension.Resolver(s.state), Dial: s.agents.Dial})
}

// webhookPlugins makes the plugins that call admission webhooks.
func (s *Server) webhookPlugins() (mutating, validating kind.Plugin) {
	return webhook.Plugins(webhook.Config{
		Mutating:   server.NewConfigView(s.state, webhook.MutatingConfigurations()),
		Validating: server.NewConfigView(s.state, webhook.ValidatingConfigurations()),
		Clients:    s.extensions, Authorizer: authz.ForCEL(s.deciders), Metrics: s.webhooks, Log: s.log,
	})
}
