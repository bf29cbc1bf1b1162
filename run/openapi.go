package run

import (
	"proa.dev/run/openapisource"
	"proa.dev/server/openapi"
)

// describedGroups returns the groups that OpenAPI shows beside the built-in ones: traces, custom resources, and those of
// aggregated servers.
func (s *Server) describedGroups() func() []openapi.Group {
	groups := openapisource.Groups(s.state, s.builtIn)
	return func() []openapi.Group { return append(groups(), s.remoteDescriptions()...) }
}
