package server

import (
	"context"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/server/admissionchain"
)

// validate is hop 6: the admission plugins that may only refuse a write.
func (s *Server) validate(ctx context.Context, r *Request, obj, old kind.Object) error {
	if len(s.Check) == 0 || r.admitted {
		return nil
	}
	a := s.admission(r, obj, old)
	a.Final = true
	return admissionchain.Admit(ctx, hop.Validate, s.Check, a)
}
