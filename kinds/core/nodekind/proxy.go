package nodekind

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/streamoptions"
)

// connectNode proxies to the agent of a node, or to another port of the node.
func connectNode(ctx context.Context, d kind.Server, c *kind.Connection) (*kind.Target, error) {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(c.Name)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid node request %q", c.Name))
	}
	o, err := d.Get(ctx, schema.GroupResource{Resource: "nodes"}, "", name)
	if err != nil {
		return nil, err
	}
	// The path is authorized in the form in which it is forwarded: "pods/../exec" does not lead to "pods".
	path, ok := streamoptions.CleanPath(c.Path)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the path %q of a node is not clean: write it without \".\" and \"..\" segments, backslashes and control characters", c.Path))
	}
	t := &kind.Target{Node: o.(*corev1.Node), Scheme: scheme, Port: port, Path: path, Shape: kind.Proxy}
	if streamoptions.RunsInContainer(path) {
		t.RequiredVerb = "create" // whatever the method is: permission to read a node does not include running commands on it
	}
	return t, nil
}
