package serviceaccounttoken

import (
	"context"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/client"
	"proa.dev/kinds/lib/gr"
)

// Used returns the function that the authenticator calls when a token is used for the first time on a day: it writes the day
// into the Secret. An error is only logged, because the next use writes it again.
func Used(w client.Writer, log *slog.Logger) func(ctx context.Context, secret *corev1.Secret, day string) {
	return func(ctx context.Context, secret *corev1.Secret, day string) {
		next := secret.DeepCopy()
		if next.Labels == nil {
			next.Labels = map[string]string{}
		}
		next.Labels[lastUsedLabel] = day
		if _, err := w.Update(ctx, gr.Secrets, next, ""); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			log.WarnContext(ctx, "cannot record the last use of a token", "namespace", secret.Namespace, "name", secret.Name, "err", err)
		}
	}
}
