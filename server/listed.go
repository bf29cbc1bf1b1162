package server

import (
	"context"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/kind"
)

// Listed lists objects for a caller in this process that has no view of them: what is computed cannot be followed. The objects
// are read-only.
func (s *Server) Listed(ctx context.Context, who user.Info, gr schema.GroupResource, namespace string, sel labels.Selector) ([]kind.Object, error) {
	r, err := (&local{server: s, who: who}).request("list", gr, namespace, "")
	if err != nil {
		return nil, err
	}
	r.Options.List.Labels = sel
	res, err := s.serveLocal(ctx, r)
	if err != nil {
		return nil, err
	}
	out := make([]kind.Object, len(res.List.Items))
	for i, e := range res.List.Items {
		out[i] = e.Object()
	}
	return out, nil
}
