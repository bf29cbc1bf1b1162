package peerrecords

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/trace"
)

// unreadable is a cluster whose Leases cannot be read.
type unreadable struct {
	client.Client
	asked int
}

func (u *unreadable) View(context.Context, schema.GroupResource) (client.View, error) {
	u.asked++
	return nil, errors.New("unreadable")
}

// TestFewAsks checks that a request which reads many traces does not ask a silent server again and again, and that each trace says what
// is missing.
func TestFewAsks(t *testing.T) {
	cluster := &unreadable{}
	peers := New(Config{Address: netip.MustParseAddrPort("192.0.2.1:1"), Log: slog.New(slog.DiscardHandler),
		Client: func() client.Client { return cluster }})
	object := []trace.Ref{{Resource: "pods", Namespace: "default", Name: "web"}}
	ctx := WithFewAsks(t.Context())
	for i, want := range []string{"Leases cannot be read", "did not answer before", "did not answer before"} {
		if _, missing := peers.Add(ctx, nil, object); len(missing) != 1 || !strings.Contains(missing[0].Text, want) {
			t.Errorf("trace %d: %v", i, missing)
		}
	}
	if cluster.asked != 1 {
		t.Errorf("it has asked %d times", cluster.asked)
	}
	peers.Add(t.Context(), nil, object)
	peers.Add(t.Context(), nil, object)
	if cluster.asked != 3 {
		t.Errorf("without a bound it has asked %d times", cluster.asked)
	}
}
