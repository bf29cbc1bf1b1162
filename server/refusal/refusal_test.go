package refusal

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/hop"
	"proa.dev/kv"
	"proa.dev/server/apistatus"
)

func TestRefusal(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	body := []byte(`{"password":"hunter2"}`)
	for _, c := range []struct {
		err          error
		confidential bool
		hop          hop.Hop
		text         string
	}{
		{apierrors.NewNotFound(pods, "p"), false, hop.Commit, `pods "p" not found`},
		{apierrors.NewAlreadyExists(pods, "p"), false, hop.Commit, `pods "p" already exists`},
		{apierrors.NewConflict(pods, "p", errors.New("old")), false, hop.Commit, `Operation cannot be fulfilled on pods "p": old`},
		{fmt.Errorf("get the namespace: %w", apistatus.FromStore(fmt.Errorf("%w: slow", kv.ErrUnavailable))), false, hop.Commit,
			"the store is not available: the store is not available: slow; the outcome of a write is unknown, read before trying again"},
		{apistatus.Unavailable("the webhook is not available"), false, hop.Schema, "the webhook is not available"},
		{apierrors.NewBadRequest("no object: " + string(body)), false, hop.Schema, "no object: "},
		{apierrors.NewBadRequest("the value is hunter2"), true, hop.Schema, "BadRequest"},
		{apierrors.NewBadRequest("\x1b[31m" + strings.Repeat("x", 1000)), false, hop.Schema, "?[31m" + strings.Repeat("x", hop.MaxText-5)},
		{apierrors.NewBadRequest(""), false, hop.Schema, "BadRequest"},
	} {
		if h, text := Hop(c.err), Text(c.err, body, c.confidential); h != c.hop || text != c.text {
			t.Errorf("%v: %s %q, want %s %q", c.err, h, text, c.hop, c.text)
		}
	}
}
