package satoken

import (
	"context"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/client"
	"proa.dev/kinds/gr"
)

// Used returns what an authenticator calls when a token is used for the first time on a day: it notes the day in the Secret.
// That it fails does not concern who uses the token; the next use notes it again.
func Used(w client.Writer, log *slog.Logger) func(ctx context.Context, secret *corev1.Secret, day string) {
	return func(ctx context.Context, secret *corev1.Secret, day string) {
		next := secret.DeepCopy()
		if next.Labels == nil {
			next.Labels = map[string]string{}
		}
		next.Labels[lastUsedLabel] = day
		if _, err := w.Update(ctx, gr.Secrets, next, ""); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			log.WarnContext(ctx, "the use of a token could not be noted", "namespace", secret.Namespace, "name", secret.Name, "err", err)
		}
	}
}
