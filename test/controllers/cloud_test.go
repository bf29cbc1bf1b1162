package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/control"
	"proa.dev/control/cloud"
	"proa.dev/control/controltest"
)

// fakeCloud is the cloud provider "sky", which is controlled by annotations of objects, so that scripts can describe it:
//
//	sky/metadata: JSON of cloud.Metadata
//	sky/gone, sky/off: the machine does not exist, or is switched off
//	sky/fails: the error of the next call
//	sky/later, sky/pending: why there is no load balancer yet
//	sky/ip: its address
type fakeCloud struct {
	mu     sync.Mutex
	routes map[string]cloud.Route
}

func (*fakeCloud) Ensure(_ context.Context, _ *control.Cluster, svc *corev1.Service, nodes []*corev1.Node) (out corev1.LoadBalancerStatus,
	err error) {
	switch a := svc.Annotations; {
	case a["sky/later"] != "":
		return out, &cloud.Later{After: time.Minute, Why: a["sky/later"]}
	case a["sky/pending"] != "":
		return out, &cloud.Pending{Why: a["sky/pending"]}
	case a["sky/fails"] != "":
		return out, errors.New(a["sky/fails"])
	}
	if len(nodes) > 0 {
		out.Ingress = []corev1.LoadBalancerIngress{{Hostname: fmt.Sprintf("%s-with-%d-nodes.sky", svc.Name, len(nodes))}}
		if ip := svc.Annotations["sky/ip"]; ip != "" {
			out.Ingress = []corev1.LoadBalancerIngress{{IP: ip}}
		}
	}
	return out, nil
}

func (*fakeCloud) Remove(_ context.Context, svc *corev1.Service) error {
	if why := svc.Annotations["sky/fails"]; why != "" {
		return errors.New(why)
	}
	return nil
}

func (*fakeCloud) Exists(_ context.Context, n *corev1.Node) (bool, error) {
	return n.Annotations["sky/gone"] == "", lookupError(n)
}

func (*fakeCloud) Shutdown(_ context.Context, n *corev1.Node) (bool, error) {
	return n.Annotations["sky/off"] != "", lookupError(n)
}

func (*fakeCloud) Metadata(_ context.Context, n *corev1.Node) (*cloud.Metadata, error) {
	text := n.Annotations["sky/metadata"]
	if text == "" {
		return nil, lookupError(n)
	}
	out := &cloud.Metadata{}
	return out, errors.Join(json.Unmarshal([]byte(text), out), lookupError(n))
}

func lookupError(n *corev1.Node) error {
	if why := n.Annotations["sky/fails"]; why != "" {
		return errors.New(why)
	}
	return nil
}

func (s *fakeCloud) List(context.Context) (out []cloud.Route, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.routes {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b cloud.Route) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func (s *fakeCloud) Create(_ context.Context, _ string, r cloud.Route) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Name = r.Node + "-" + r.Destination.String()
	if _, has := s.routes[r.Name]; has {
		return errors.New("there is such a route")
	}
	s.routes[r.Name] = r
	return nil
}

func (s *fakeCloud) Delete(_ context.Context, r cloud.Route) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.routes, r.Name)
	return nil
}

func TestCloud(t *testing.T) {
	t.Parallel()
	s := &fakeCloud{}
	controltest.Scripts(t, "../../control/cloud/testdata/scripts/*.txt",
		cloud.Controllers(cloud.Provider{Name: "sky", Class: "sky.example.org/lb", Balancer: s, Instances: s}, nil)...)
}

// TestCloudWithoutParts checks that a provider without any part has no controllers.
func TestCloudWithoutParts(t *testing.T) {
	t.Parallel()
	if got := cloud.Controllers(cloud.Provider{Name: "none"}, nil); len(got) > 0 {
		t.Errorf("there are %d controllers", len(got))
	}
}

func parsePrefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}
