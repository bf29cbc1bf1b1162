package run

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/control/clusterrole"
	"proa.dev/control/definition"
	"proa.dev/control/namespace"
	"proa.dev/control/protection"
	"proa.dev/control/rootca"
	"proa.dev/control/serviceaccount"
	"proa.dev/kinds/kind"
	"proa.dev/server/authz"
)

// controllers are the loops of the control plane.
func (s *Server) controllers() []control.Controller {
	namespaced := func() (out []schema.GroupResource) {
		for _, d := range s.defs {
			if d.Hub == nil && d.Scope == kind.Namespaced && d.Allows("deletecollection") && d.Allows("list") {
				out = append(out, d.Resource())
			}
		}
		return out
	}
	all := append(protection.Controllers(),
		definition.Controller(),
		serviceaccount.Controller(),
		rootca.Controller(string(s.pki.CA().PEM)),
		clusterrole.Controller(authz.Aggregate),
		namespace.Controller(namespaced, s.controller("namespace-controller").View),
	)
	if s.Loops != nil {
		all = s.Loops(all)
	}
	return all
}

// loops starts the controllers.
func (s *Server) loops(ctx context.Context, wg *sync.WaitGroup, fail context.CancelCauseFunc) {
	for _, ctl := range s.controllers() {
		wg.Go(func() {
			if err := control.Run(ctx, s.log, s.controller(ctl.Name), ctl, s.queues); err != nil && ctx.Err() == nil {
				fail(err)
			}
		})
	}
}

// controller is the identity of a controller.
func (s *Server) controller(name string) client.Client {
	c := s.front.Client(&user.DefaultInfo{
		Name:   "system:serviceaccount:kube-system:" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", user.AllAuthenticated},
	})
	if s.Wrap != nil {
		c = s.Wrap(name, c)
	}
	return c
}
