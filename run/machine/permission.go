package machine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/run/bootstraproles"
	"proa.dev/run/parthealth"
)

// An agent of proa reads more than Kubernetes lets every node read: it answers names, and enforces Services and network policies. On an
// API server that is not proa's the role for that may be missing. What is refused then becomes a sentence that says how to grant it.

// missingRole is the error of a node that lacks a permission of the role of proa's agents.
type missingRole struct {
	user, verb string
	on         schema.GroupResource
	err        error
}

func (e *missingRole) Error() string {
	return fmt.Sprintf("%s may not %s %s; grant it with: %s", e.user, e.verb, e.on, bootstraproles.GrantNodeRole)
}

func (e *missingRole) Unwrap() error { return e.err }

// explainMissingRole returns an error that says how to grant what was refused, if the role of nodes would grant it.
func explainMissingRole(node, verb string, on schema.GroupResource, err error) error {
	if !apierrors.IsForbidden(err) || !bootstraproles.NodeRoleGrants(verb, on) {
		return err
	}
	return &missingRole{user: "system:node:" + node, verb: verb, on: on, err: err}
}

// roleClient is the client of an agent. Its errors say which permission the node lacks.
type roleClient struct {
	client.Client
	node string
}

// View opens the view of a whole resource. A Part needs no role: nodes may read their own objects.
func (c *roleClient) View(ctx context.Context, on schema.GroupResource) (client.View, error) {
	v, err := c.Client.View(ctx, on)
	if err != nil {
		return nil, explainMissingRole(c.node, "list", on, err)
	}
	return v, nil
}

// Get reads an object.
func (c *roleClient) Get(ctx context.Context, on schema.GroupResource, namespace, name, sub string) (kind.Object, error) {
	o, err := c.Client.Get(ctx, on, namespace, name, sub)
	if err != nil && on == gr.Namespaces {
		err = explainMissingRole(c.node, "get", on, err)
	}
	return o, err
}

// refusedWatches records which watches of whole resources the server forbids. A view of such a resource could be
// opened, and is out of date.
type refusedWatches struct {
	node string
	log  *slog.Logger

	mu     sync.Mutex // guards failed
	failed map[schema.GroupResource]error
}

// set records that a watch is forbidden, or allowed again if err is nil.
func (w *refusedWatches) set(on schema.GroupResource, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		delete(w.failed, on)
		w.log.Info("the server allows a watch again", "resource", on.String())
		return
	}
	err = explainMissingRole(w.node, "watch", on, err)
	w.log.Error("the server forbids a watch; what the node knows of these objects is old", "resource", on.String(), "err", err)
	w.failed[on] = err
}

// check returns an error that names all watches that are forbidden.
func (w *refusedWatches) check() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.failed) == 0 {
		return nil
	}
	var all []string
	for _, err := range w.failed {
		all = append(all, err.Error())
	}
	slices.Sort(all)
	return errors.New(strings.Join(all, "; "))
}

// checkParts returns an error that names all parts of the node that do not work.
func (p *agentHost) checkParts() error {
	failed := p.health.Failed()
	if len(failed) == 0 {
		return nil
	}
	return errors.New(describeFailures(failed))
}

// describeFailures names the parts of a node that do not work, in one sentence. Missing permissions come first, with
// the command that grants them all.
func describeFailures(failed []parthealth.FailedPart) string {
	lacking, user := map[string][]string{}, ""
	var all []string
	for _, f := range failed {
		if e, is := errors.AsType[*missingRole](f.Err); is {
			user = e.user
			what := e.verb + " " + e.on.String()
			lacking[what] = append(lacking[what], f.Name)
			continue
		}
		all = append(all, fmt.Sprintf("%s: %v", f.Name, f.Err))
	}
	if len(lacking) == 0 {
		return strings.Join(all, "; ")
	}
	var permissions []string
	for _, what := range slices.Sorted(maps.Keys(lacking)) {
		permissions = append(permissions, fmt.Sprintf("%s (for %s)", what, strings.Join(lacking[what], ", ")))
	}
	return strings.Join(append([]string{fmt.Sprintf("%s may not %s; grant it with: %s", user, strings.Join(permissions, ", "),
		bootstraproles.GrantNodeRole)}, all...), "; ")
}
