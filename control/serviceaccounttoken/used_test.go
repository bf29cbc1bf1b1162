package serviceaccounttoken

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// writer keeps the last update.
type writer struct {
	client.Writer
	on   schema.GroupResource
	last *corev1.Secret
	err  error
}

func (w *writer) Update(_ context.Context, on schema.GroupResource, o kind.Object, sub string) (kind.Object, error) {
	w.on, w.last = on, o.(*corev1.Secret)
	return o, w.err
}

func TestUsed(t *testing.T) {
	for _, c := range []struct {
		err    error
		logged bool
	}{
		{nil, false}, {apierrors.NewConflict(gr.Secrets, "x", nil), false}, {apierrors.NewNotFound(gr.Secrets, "x"), false},
		{errors.New("no"), true},
	} {
		var out strings.Builder
		w := &writer{err: c.err}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "x", ResourceVersion: "7"}}
		Used(w, slog.New(slog.NewTextHandler(&out, nil)))(t.Context(), secret, "2026-01-02")
		if w.on != gr.Secrets || w.last.Labels[lastUsedLabel] != "2026-01-02" || w.last.ResourceVersion != "7" || secret.Labels != nil {
			t.Errorf("wrote %+v", w.last)
		}
		if logged := out.Len() > 0; logged != c.logged {
			t.Errorf("%v: logged %q", c.err, out.String())
		}
	}
}
