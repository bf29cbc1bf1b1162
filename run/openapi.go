package run

import (
	"proa.dev/run/openapisource"
	"proa.dev/server/crdopenapi"
	"proa.dev/server/openapi"
)

// describedGroups returns the groups that OpenAPI shows beside the built-in ones: custom resources, and those of
// aggregated servers.
func (s *Server) describedGroups() []openapi.Group {
	return append(crdopenapi.Groups(openapisource.Definitions(s.state)), s.remoteDescriptions()...)
}
