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
	"k8s.io/apimachinery/pkg/types"
	gw "sigs.k8s.io/gateway-api/apis/v1"

	"proa.dev/client"
	"proa.dev/kinds/gr"
)

// Run serves Gateways until ctx ends: whenever the definitions of the standard are there. It waits for them by the view of definitions,
// which the process has anyway, and holds nothing else meanwhile.
func Run(ctx context.Context, c Config) error {
	if c.NodeName == "" || c.Client == nil {
		return errors.New("gateway: the name of the node and a client must be given")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Listen == nil {
		c.Listen = net.Listen
	}
	view, err := c.Client.View(ctx, gr.CustomResourceDefinitions)
	if err != nil {
		return err
	}
	view = client.Outlines(view)
	changed := make(chan struct{}, 1)
	go func() {
		for e := range view.Events(ctx) {
			if e.Gap || isOfStandard(e.Object.GetName()) {
				signal(changed)
			}
		}
	}()
	var (
		serving map[string]types.UID
		stop    = func() {}
	)
	defer func() { stop() }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
		defined := map[string]types.UID{}
		for name := range resources() {
			if o, ok := view.Get("", name+"."+group); ok && isServed(o, name) {
				defined[name] = o.GetUID()
			}
		}
		if maps.Equal(defined, serving) {
			continue
		}
		stop()
		stop, serving = func() {}, defined
		if complete(defined) {
			stop = start(ctx, c, slices.Sorted(maps.Keys(defined)))
		}
		select { // definitions come several at once
		case <-ctx.Done():
			return nil
		case <-time.After(together):
		}
	}
}

// together is how long definitions are waited for that come with others.
const together = 200 * time.Millisecond

// resources are those of the standard that are read, and whether Gateways can be served without.
func resources() map[string]bool {
	return map[string]bool{classes: true, gateways: true, httpRoutes: true, grants: true, grpcRoutes: false, tlsRoutes: false, policies: false, listenerSets: false}
}

func isOfStandard(definition string) bool {
	for name := range resources() {
		if definition == name+"."+group {
			return true
		}
	}
	return false
}

func complete(defined map[string]types.UID) bool {
	for name, needed := range resources() {
		if _, ok := defined[name]; needed && !ok {
			return false
		}
	}
	return true
}

// isServed says that a definition is established, in a version that is read here. ReferenceGrants were v1beta1 for longer than the others.
func isServed(o any, name string) bool {
	c, ok := o.(*apiextensionsv1.CustomResourceDefinition)
	return ok && c.DeletionTimestamp == nil && slices.ContainsFunc(c.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	}) && slices.ContainsFunc(c.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Served && (v.Name == gw.GroupVersion.Version || name == grants && v.Name == "v1beta1")
	})
}

// start serves what is defined, until the caller stops it.
func start(ctx context.Context, c Config, defined []string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, longestPause) {
			err := serve(ctx, c, defined)
			if err == nil || ctx.Err() != nil {
				return
			}
			c.Log.Warn("Gateways cannot be served; it is tried again", "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// serve makes the class and serves Gateways until ctx ends.
func serve(ctx context.Context, c Config, defined []string) error {
	s, err := newServer(ctx, c, defined)
	if err != nil {
		return err
	}
	c.Log.Info("serving Gateways", "resources", defined)
	if err := s.plantClass(ctx); err != nil {
		c.Log.Warn("the class of Gateways could not be made", "class", c.Class, "err", err)
	}
	return s.run(ctx)
}

// plantClass makes the class if there is none of its name.
func (s *server) plantClass(ctx context.Context) error {
	if s.Class == "" {
		return nil
	}
	if err := s.custom[classes].Reach(ctx, 0); err != nil {
		return err
	}
	if _, ok := s.custom[classes].Get("", s.Class); ok {
		return nil
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"controllerName": Controller}}}
	u.SetAPIVersion(gw.GroupVersion.String())
	u.SetKind(kindGatewayClass)
	u.SetName(s.Class)
	if _, err := s.Client.Create(ctx, resource(classes), u); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}
