package run

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/lib/gr"
	"proa.dev/run/bootstraproles"
	"proa.dev/server/localclient"
)

// TestGatewayPermissions checks that the proxy for Gateways may read what it needs, and nothing else.
func TestGatewayPermissions(t *testing.T) {
	gateway := localclient.New(newServer(t).pipeline, Account(bootstraproles.GatewayAccount))
	for _, on := range []schema.GroupResource{gr.Services, gr.EndpointSlices, gr.Secrets, gr.ConfigMaps, gr.Namespaces, gr.Nodes,
		gr.CustomResourceDefinitions} {
		if _, err := gateway.View(t.Context(), on); err != nil {
			t.Errorf("it must see %s: %v", on, err)
		}
	}
	for _, on := range []schema.GroupResource{gr.Pods, gr.ServiceAccounts} {
		if _, err := gateway.View(t.Context(), on); !apierrors.IsForbidden(err) {
			t.Errorf("it sees %s: %v", on, err)
		}
	}
	for _, on := range []schema.GroupResource{gr.Secrets, gr.ConfigMaps, gr.Pods} {
		if err := gateway.Delete(t.Context(), on, "default", "x", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("it deletes %s: %v", on, err)
		}
	}
}
