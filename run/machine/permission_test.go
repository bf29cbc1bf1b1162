package machine

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"iter"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/client"
	"proa.dev/client/remote"
	"proa.dev/kinds/lib/gr"
	"proa.dev/node/nodestatus"
	"proa.dev/proatest"
	"proa.dev/run/bootstraproles"
	"proa.dev/run/machine/agentjoin"
	"proa.dev/run/parthealth"
)

// TestErrorNamesMissingPermissions runs a node on a server that grants nodes only what Kubernetes grants them. The Ready condition
// has one sentence with everything that the node's parts cannot read and how to grant it. A missing ConfigMap proa-cluster does
// not keep the node from starting.
func TestErrorNamesMissingPermissions(t *testing.T) {
	c := proatest.Start(t, proatest.Memory(), proatest.Alone())
	if err := c.Client.Delete(t.Context(), gr.ClusterRoleBindings, "", "proa:node-network", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	node := &roleClient{newNodeClient(c), "a"}
	err := awaitForbidden(t, node)
	const want = "system:node:a may not list endpointslices.discovery.k8s.io; grant it with: proa agent --print-role | kubectl apply -f -"
	if err == nil || err.Error() != want || !apierrors.IsForbidden(err) {
		t.Fatalf("%v, want %s", err, want)
	}
	if _, err := node.Get(t.Context(), gr.Secrets, "kube-system", "x", ""); err == nil || strings.Contains(err.Error(), "--print-role") {
		t.Errorf("a Secret that is not the node's: %v", err)
	}
	l := &agentjoin.SettingsReader{Client: node, File: filepath.Join(t.TempDir(), "settings.json"), Log: slog.New(slog.DiscardHandler)}
	if learned, err := l.Read(t.Context()); err != nil || learned != nil {
		t.Errorf("without the settings of the cluster: %v %v", learned, err)
	}
	p := agentHost{client: node}
	var view client.View
	_ = p.health.Run(t.Context(), "service-proxy", func() error {
		return p.openViews(t.Context(), viewTarget{gr.Services, &view}, viewTarget{gr.EndpointSlices, &view})
	})
	_ = p.health.Run(t.Context(), "dns", func() error { return p.openViews(t.Context(), viewTarget{gr.EndpointSlices, &view}) })
	_ = p.health.Run(t.Context(), "network-policy", func() error { return p.openViews(t.Context(), viewTarget{gr.NetworkPolicies, &view}) })
	_ = p.health.Run(t.Context(), "mesh", func() error { return errors.New("no way") })
	const all = "system:node:a may not list endpointslices.discovery.k8s.io (for dns, service-proxy), list networkpolicies.networking.k8s.io (for network-policy); " +
		"grant it with: " + bootstraproles.GrantNodeRole + "; mesh: no way"
	if err := p.checkParts(); err == nil || err.Error() != all {
		t.Errorf("the node says %v, want %s", err, all)
	}
}

func newNodeClient(c *proatest.Cluster) client.Client {
	return c.Server.Client(&user.DefaultInfo{Name: "system:node:a", Groups: []string{user.NodesGroup, user.AllAuthenticated}})
}

// awaitForbidden opens views of EndpointSlices until that fails, and returns the error: the authorizer's cache of roles lags behind.
func awaitForbidden(t *testing.T, node client.Client) error {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err := node.View(t.Context(), gr.EndpointSlices); err != nil {
			return err
		}
	}
	return nil
}

// nodeView is a view of a Node whose events a test sends.
type nodeView struct {
	client.View
	events chan client.Event
}

func (v *nodeView) Events(ctx context.Context) iter.Seq[client.Event] {
	return func(yield func(client.Event) bool) {
		for {
			select {
			case <-ctx.Done():
				return
			case e := <-v.events:
				if !yield(e) {
					return
				}
			}
		}
	}
}

// nodeViewClient is a client whose only view is a nodeView.
type nodeViewClient struct {
	client.Client
	view *nodeView
}

func (c nodeViewClient) Part(context.Context, schema.GroupResource, client.Scope) (client.View, error) {
	return c.view, nil
}

// TestNodeWithoutPodNetwork checks that a node without spec.podCIDRs reports that after a while, and what assigns them.
func TestNodeWithoutPodNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := &nodeView{events: make(chan client.Event, 2)}
		view.events <- client.Event{Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}
		var p agentHost
		done := make(chan error, 1)
		go func() {
			_, err := podCIDRs(t.Context(), nodeViewClient{view: view}, "a", func(err error) { p.health.Set("pod-cidr", err) })
			done <- err
		}()
		time.Sleep(parthealth.WorksAfter - 1)
		synctest.Wait()
		if err := p.checkParts(); err != nil {
			t.Errorf("too early: %v", err)
		}
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		if err := p.checkParts(); err == nil || !strings.Contains(err.Error(), "the Node a has no spec.podCIDRs") ||
			!strings.Contains(err.Error(), "--allocate-node-cidrs") {
			t.Errorf("it says %v", err)
		}
		view.events <- client.Event{Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Spec: corev1.NodeSpec{PodCIDRs: []string{"10.1.0.0/24"}}}}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if err := p.checkParts(); err != nil {
			t.Errorf("it has a network, and says %v", err)
		}
	})
}

// TestForbiddenWatch checks that a node that may list EndpointSlices but not watch them reports that: its view opens, and would
// silently become stale.
func TestForbiddenWatch(t *testing.T) {
	c := proatest.Start(t, proatest.Memory())
	setVerbs := func(setVerbs ...string) {
		t.Helper()
		o, err := c.Client.Get(t.Context(), gr.ClusterRoles, "", "proa:node-network", "")
		if err != nil {
			t.Fatal(err)
		}
		role := o.(*rbacv1.ClusterRole)
		for i := range role.Rules {
			if role.Rules[i].Resources[0] == gr.EndpointSlices.Resource {
				role.Rules[i].Verbs = setVerbs
			}
		}
		if _, err := c.Client.Update(t.Context(), gr.ClusterRoles, role, ""); err != nil {
			t.Fatal(err)
		}
	}
	setVerbs("list")
	if err := awaitForbidden(t, newNodeClient(c)); !apierrors.IsForbidden(err) {
		t.Fatal(err)
	}
	changed := make(chan error, 10)
	w := &refusedWatches{node: "a", log: slog.New(slog.DiscardHandler), failed: map[schema.GroupResource]error{}}
	p := agentHost{refused: w}
	cert := &nodestatus.Certificate{
		File: filepath.Join(t.TempDir(), agentjoin.ClientFile), Log: w.log, Issue: (&Machine{Server: c.Server}).signClientCertificate,
		Wanted: func() *x509.CertificateRequest { return nodestatus.ClientRequest("a") },
	}
	if err := errors.Join(cert.Load(), cert.Renew(t.Context())); err != nil {
		t.Fatal(err)
	}
	node, err := remote.New(t.Context(), remote.Config{
		URL: c.Config.Host, Agent: "test", Log: w.log,
		TLS:     &tls.Config{RootCAs: c.Server.CA().Pool, GetClientCertificate: cert.Present, MinVersion: tls.VersionTLS12},
		Refused: func(on schema.GroupResource, err error) { w.set(on, err); changed <- p.checks()[1].Run() },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	if _, err := node.View(t.Context(), gr.EndpointSlices); err != nil {
		t.Fatal(err)
	}
	next := func() error {
		t.Helper()
		select {
		case err := <-changed:
			return err
		case <-time.After(30 * time.Second):
			t.Fatal("the failed watch is not reported")
			return nil
		}
	}
	const want = "system:node:a may not watch endpointslices.discovery.k8s.io; grant it with: " + bootstraproles.GrantNodeRole
	if err := next(); err == nil || err.Error() != want {
		t.Errorf("the node says %v, want %s", err, want)
	}
	setVerbs("list", "watch")
	if err := next(); err != nil {
		t.Errorf("the watch is allowed again, and the node says %v", err)
	}
}
