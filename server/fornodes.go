package server

import (
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/server/authz"
)

// forNodes says that a request is the list or watch of a node's agent which is not kept to the objects of that node, so that it
// is answered in the form that the kind has for nodes (kind.NodeForm). Callers in this process read the cache, and see it whole.
func (r *Request) forNodes() bool {
	form := r.Def.Storage().ForNodes
	// The role of nodes is that of the whole group, also of a member whose name is not that of a node.
	if form == nil || r.User == nil || r.Verb != "list" && r.Verb != "watch" || !slices.Contains(r.User.GetGroups(), user.NodesGroup) {
		return false
	}
	node, _ := authz.NodeName(r.User)
	return form.Own == "" || node == "" || r.Options.List.exact(form.Own) != node
}

// checkForNodes refuses field selectors by which a node would find out what it is not shown.
func (r *Request) checkForNodes() error {
	if !r.forNodes() || r.Options.List.Fields == nil {
		return nil
	}
	form := r.Def.Storage().ForNodes
	for _, w := range r.Options.List.Fields.Requirements() {
		if !slices.Contains(form.Fields, w.Field) {
			return apierrors.NewForbidden(r.Def.Resource(), "", fmt.Errorf("nodes may select %s of others only by %s, and not by %s",
				r.Def.Plural, strings.Join(form.Fields, ", "), w.Field))
		}
	}
	return nil
}
