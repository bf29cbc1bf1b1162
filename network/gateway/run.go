package gateway

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	gw "sigs.k8s.io/gateway-api/apis/v1"

	"proa.dev/client"
	"proa.dev/internal/wait"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/network/gatewayplan"
)

// Run serves Gateways until ctx ends, while the definitions of the Gateway API are installed. It waits for them with the view of
// definitions, of which it needs outlines only, and holds no other view meanwhile.
func Run(ctx context.Context, c Config) error {
	if c.NodeName == "" || c.Client == nil {
		return errors.New("gateway: the name of the node and a client must be given")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Listen == nil {
		c.Listen = func(_, address string) (net.Listener, error) { return net.Listen("tcp", address) }
	}
	if c.Synced == nil {
		c.Synced = func() {}
	}
	view, err := c.Client.View(ctx, gr.CustomResourceDefinitions)
	if err != nil {
		return err
	}
	view = client.Outlines(view)
	changed := wait.NewSignal()
	go func() {
		for e := range view.Events(ctx) {
			if e.Gap || isGatewayDefinition(e.Object.GetName()) {
				changed.Send()
			}
		}
	}()
	var (
		serving map[string]types.UID
		stop    = func() {}
	)
	defer func() { stop() }()
	if c.Define == nil {
		c.Define = func(string, schema.GroupVersionKind, kind.Scope) {}
	}
	changed.Send() // without definitions there is no event
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
		defined := map[string]types.UID{}
		for name := range resources() {
			if o, ok := view.Get("", name+"."+gw.GroupName); ok {
				if definition, version := servedVersion(o, name); version != "" {
					defined[name] = o.GetUID()
					c.Define(name, schema.GroupVersionKind{Group: gw.GroupName, Version: version, Kind: definition.Spec.Names.Kind},
						scopeOf(definition))
				}
			}
		}
		if !hasRequired(defined) {
			c.Synced()
		}
		if maps.Equal(defined, serving) {
			continue
		}
		stop()
		stop, serving = func() {}, defined
		if hasRequired(defined) {
			stop = start(ctx, c, slices.Sorted(maps.Keys(defined)))
		}
		if wait.Sleep(ctx, installDelay) != nil {
			return nil
		}
	}
}

// installDelay is how long Run waits for further definitions, which are installed together.
const installDelay = 200 * time.Millisecond

// resources returns the resources of the Gateway API that are read. The value is true for those that are required.
func resources() map[string]bool {
	return map[string]bool{classes: true, gateways: true, httpRoutes: true, grants: true, grpcRoutes: false, tlsRoutes: false,
		policies: false, listenerSets: false}
}

func isGatewayDefinition(definition string) bool {
	for name := range resources() {
		if definition == name+"."+gw.GroupName {
			return true
		}
	}
	return false
}

func hasRequired(defined map[string]types.UID) bool {
	for name, needed := range resources() {
		if _, ok := defined[name]; needed && !ok {
			return false
		}
	}
	return true
}

// servedVersion returns an established definition and the version of it that is read here; empty if it serves none. ReferenceGrants
// became v1 later than the others.
func servedVersion(o any, name string) (c *apiextensionsv1.CustomResourceDefinition, version string) {
	c, ok := o.(*apiextensionsv1.CustomResourceDefinition)
	if !ok || c.DeletionTimestamp != nil ||
		!slices.ContainsFunc(c.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
		}) {
		return c, ""
	}
	for _, v := range c.Spec.Versions {
		if v.Served && (v.Name == gw.GroupVersion.Version || name == grants && v.Name == "v1beta1" && version == "") {
			version = v.Name
		}
	}
	return c, version
}

// scopeOf returns whether the objects of a definition are in namespaces.
func scopeOf(c *apiextensionsv1.CustomResourceDefinition) kind.Scope {
	if c.Spec.Scope == apiextensionsv1.ClusterScoped {
		return kind.Cluster
	}
	return kind.Namespaced
}

// start serves Gateways in the background, with retries, until the caller stops it.
func start(ctx context.Context, c Config, defined []string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		backoff := wait.Backoff{First: firstBackoff, Max: maxBackoff}
		for ctx.Err() == nil {
			err := serve(ctx, c, defined)
			if err == nil || ctx.Err() != nil {
				return
			}
			c.Log.Warn("Gateways cannot be served; it is tried again", "err", err)
			_ = backoff.Sleep(ctx)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// serve creates the class and serves Gateways until ctx ends.
func serve(ctx context.Context, c Config, defined []string) error {
	s, err := newServer(ctx, c, defined)
	if err != nil {
		return err
	}
	c.Log.Info("serving Gateways", "resources", defined)
	if err := s.createClass(ctx); err != nil {
		c.Log.Warn("the GatewayClass cannot be created", "class", c.Class, "err", err)
	}
	return s.run(ctx)
}

// createClass creates the GatewayClass of the settings if there is none of its name.
func (s *server) createClass(ctx context.Context) error {
	if s.Class == "" {
		return nil
	}
	if err := s.custom[classes].Reach(ctx, 0); err != nil {
		return err
	}
	if _, ok := s.custom[classes].Get("", s.Class); ok {
		return nil
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"controllerName": gatewayplan.Controller}}}
	u.SetAPIVersion(gw.GroupVersion.String())
	u.SetKind("GatewayClass")
	u.SetName(s.Class)
	if _, err := s.Client.Create(ctx, resource(classes), u); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}
