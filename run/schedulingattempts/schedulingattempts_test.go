package schedulingattempts

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/server/peerrecords"
	"proa.dev/why"
)

// unreadable is a cluster whose Leases cannot be read.
type unreadable struct{ client.Client }

func (unreadable) View(context.Context, schema.GroupResource) (client.View, error) {
	return nil, errors.New("unreadable")
}

// TestOfAll checks that a server whose scheduler runs asks nobody, and that one whose scheduler does not run, and which cannot ask the
// others, returns what it knows with an error that says so.
func TestOfAll(t *testing.T) {
	running := true
	local := func(pod types.UID) (*why.Attempt, error) {
		switch {
		case pod == "a":
			return &why.Attempt{Message: "about a"}, nil
		case running:
			return nil, nil
		}
		return nil, apierrors.NewServiceUnavailable("the scheduler runs on another server, or is not running")
	}
	peers := peerrecords.New(peerrecords.Config{Address: netip.MustParseAddrPort("192.0.2.1:1"), Log: slog.New(slog.DiscardHandler),
		Client: func() client.Client { return unreadable{} }})
	for _, c := range []struct {
		running bool
		peers   *peerrecords.Peers
		pods    []types.UID
		known   int
		err     string
	}{
		{true, peers, []types.UID{"a", "b"}, 1, ""},
		{false, peers, []types.UID{"a"}, 1, ""},
		{false, peers, []types.UID{"a", "b"}, 1, "did not answer: all other servers"},
		{false, nil, []types.UID{"b"}, 0, "on another server, or is not running"},
	} {
		running = c.running
		got, err := OfAll(local, c.peers)(t.Context(), c.pods)
		if len(got) != c.known || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
	}
}
