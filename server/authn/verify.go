package authn

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// The labels that track the use of tokens in Secrets.
const (
	LastUsedLabel     = "kubernetes.io/legacy-token-last-used"
	InvalidSinceLabel = "kubernetes.io/legacy-token-invalid-since"
)

// errInvalidated is all that a client learns when the object that its token was bound to is deleted.
var errInvalidated = errors.New("service account token has been invalidated")

// serviceAccountToken is the TokenFunc of service-account tokens.
func (a *Authenticator) serviceAccountToken(ctx context.Context, token string, audiences []string) (user.Info, []string, bool, error) {
	k, now := a.keys.Load(), a.now()
	if len(k.public) == 0 {
		return nil, nil, false, nil
	}
	key := tokenKey(token)
	rec, cached := k.tokens.Get(key, now)
	if !cached {
		var err error
		if rec, err = a.verifySignature(k, token, now); rec == nil {
			return nil, nil, false, err
		}
		k.tokens.Put(key, rec, 0, rec.until, now)
	}
	accepted := rec.accepted
	if !isSameSlice(audiences, a.audiences) {
		accepted = intersect(rec.audiences, audiences)
	}
	if len(rec.public.Audience) == 0 {
		a.annotate(ctx, "authentication.k8s.io/legacy-token", rec.public.Subject)
	}
	if len(accepted) == 0 && len(a.audiences) != 0 {
		return nil, nil, false, fmt.Errorf("token audiences %q is invalid for the target audiences %q", rec.audiences, audiences)
	}
	var err error
	if rec.legacy != nil {
		err = a.validateLegacy(ctx, token, rec, now)
	} else {
		err = a.validateBound(ctx, rec, now)
	}
	if err != nil {
		return nil, nil, false, err
	}
	return rec.who, accepted, true, nil
}

// validateBound checks what may change during the lifetime of a token: the time, its service account and the object
// that it is bound to.
func (a *Authenticator) validateBound(ctx context.Context, rec *tokenRecord, now time.Time) error {
	if err := validateTime(&rec.public, now); err != nil {
		return err
	}
	b := &rec.bound
	sa, err := a.cfg.Lookup.ServiceAccount(ctx, b.Namespace, b.ServiceAccount.Name)
	if err != nil {
		return err
	}
	if string(sa.UID) != b.ServiceAccount.UID {
		return fmt.Errorf("service account UID (%s) does not match claim (%s)", sa.UID, b.ServiceAccount.UID)
	}
	if isDeleted(sa.DeletionTimestamp, now) {
		return fmt.Errorf("service account %s/%s has been deleted", b.Namespace, b.ServiceAccount.Name)
	}
	if err := a.validateRefs(ctx, b, now); err != nil {
		return err
	}
	if w := b.WarnAfter; w != nil && *w != 0 && now.After(w.Time()) {
		a.annotate(ctx, "authentication.k8s.io/stale-token",
			fmt.Sprintf("subject: %s, seconds after warning threshold: %d", rec.public.Subject, now.Unix()-w.Time().Unix()))
	}
	return nil
}

func validateTime(c *jwt.Claims, now time.Time) error {
	switch err := c.ValidateWithLeeway(jwt.Expected{Time: now}, leeway); {
	case err == nil:
		return nil
	case errors.Is(err, jwt.ErrExpired):
		return errors.New("service account token has expired")
	case errors.Is(err, jwt.ErrNotValidYet):
		return errors.New("service account token is not valid yet")
	case errors.Is(err, jwt.ErrIssuedInTheFuture):
		return errors.New("service account token is issued in the future")
	default:
		return errors.New("service account token claims could not be validated due to unexpected validation error")
	}
}

// invalidated returns the error of a token whose object could not be read: the token is invalid only if the object does
// not exist.
func invalidated(err error) error {
	if apierrors.IsNotFound(err) {
		return errInvalidated
	}
	return err
}

// validateRefs checks the object that the token is bound to. The Node of a Pod-bound token is only information: the
// token is valid as long as the Pod exists.
func (a *Authenticator) validateRefs(ctx context.Context, b *kubernetesClaims, now time.Time) error {
	if b.Secret != nil {
		secret, err := a.cfg.Lookup.Secret(ctx, b.Namespace, b.Secret.Name)
		if err != nil {
			return invalidated(err)
		}
		if err := validateRef("secret", b.Secret, &secret.ObjectMeta, now); err != nil {
			return err
		}
	}
	if b.Pod != nil {
		pod, err := a.cfg.Lookup.Pod(ctx, b.Namespace, b.Pod.Name)
		if err != nil {
			return invalidated(err)
		}
		if err := validateRef("pod", b.Pod, &pod.ObjectMeta, now); err != nil {
			return err
		}
	} else if b.Node != nil {
		node, err := a.cfg.Lookup.Node(ctx, b.Node.Name)
		if err != nil {
			return invalidated(err)
		}
		if err := validateRef("node", b.Node, &node.ObjectMeta, now); err != nil {
			return err
		}
	}
	if b.ValidatingWebhook != nil || b.MutatingWebhook != nil {
		return errors.New(`feature gate "APIServerWebhookAuthenticationToken" is disabled, but token is webhook bound`)
	}
	return nil
}

func validateRef(kind string, claim *ref, obj *metav1.ObjectMeta, now time.Time) error {
	if string(obj.UID) != claim.UID {
		return fmt.Errorf("%s UID (%s) does not match service account %s ref claim (%s)", kind, obj.UID, kind, claim.UID)
	}
	if isDeleted(obj.DeletionTimestamp, now) {
		return errInvalidated
	}
	return nil
}

// isDeleted reports whether an object was deleted, longer ago than clocks may differ.
func isDeleted(when *metav1.Time, now time.Time) bool {
	return when != nil && when.Time.Before(now.Add(-leeway))
}

// validateLegacy checks a token out of a Secret. It never expires, so it is valid as long as the Secret exists.
func (a *Authenticator) validateLegacy(ctx context.Context, token string, rec *tokenRecord, now time.Time) error {
	l := rec.legacy
	for _, claim := range []struct{ name, value string }{
		{"sub", rec.public.Subject},
		{"namespace", l.Namespace},
		{"secretName", l.SecretName},
		{"serviceAccountName", l.ServiceAccountName},
		{"serviceAccountUID", l.ServiceAccountUID},
	} {
		if claim.value == "" {
			return errors.New(claim.name + " claim is missing")
		}
	}
	namespace, name, err := serviceaccount.SplitUsername(rec.public.Subject)
	if err != nil || namespace != l.Namespace || name != l.ServiceAccountName {
		return errors.New("sub claim is invalid")
	}
	secret, err := a.cfg.Lookup.Secret(ctx, l.Namespace, l.SecretName)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err != nil || secret.DeletionTimestamp != nil {
		return errors.New("Token has been invalidated")
	}
	if subtle.ConstantTimeCompare(secret.Data[corev1.ServiceAccountTokenKey], []byte(token)) == 0 {
		return errors.New("Token does not match server's copy")
	}
	sa, err := a.cfg.Lookup.ServiceAccount(ctx, l.Namespace, l.ServiceAccountName)
	if err != nil {
		return err
	}
	if sa.DeletionTimestamp != nil {
		return fmt.Errorf("ServiceAccount %s/%s has been deleted", l.Namespace, l.ServiceAccountName)
	}
	if string(sa.UID) != l.ServiceAccountUID {
		return fmt.Errorf("ServiceAccount UID (%s) does not match claim (%s)", sa.UID, l.ServiceAccountUID)
	}
	return a.trackLegacy(ctx, sa, secret, now)
}

// trackLegacy records the use of a token out of a Secret, so that administrators find such tokens, and rejects those
// that were marked invalid.
func (a *Authenticator) trackLegacy(ctx context.Context, sa *corev1.ServiceAccount, secret *corev1.Secret, now time.Time) error {
	today, tomorrow := now.UTC().Format(time.DateOnly), now.UTC().AddDate(0, 0, 1).Format(time.DateOnly)
	if last := secret.Labels[LastUsedLabel]; last != today && last != tomorrow && a.cfg.LegacyUsed != nil {
		a.cfg.LegacyUsed(ctx, secret, today)
	}
	if secret.Labels[InvalidSinceLabel] != "" {
		a.annotate(ctx, "authentication.k8s.io/legacy-token-invalidated", secret.Name+"/"+secret.Namespace)
		return fmt.Errorf("the token in secret %s/%s for service account %s/%s has been marked invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the '%s' label from the secret to temporarily allow use of this token",
			secret.Namespace, secret.Name, sa.Namespace, sa.Name, InvalidSinceLabel)
	}
	for _, r := range sa.Secrets {
		if r.Name == secret.Name {
			a.warn(ctx, "Use tokens from the TokenRequest API or manually created secret-based tokens instead of auto-generated secret-based tokens.")
			a.annotate(ctx, "authentication.k8s.io/legacy-token-autogenerated-secret", secret.Name)
			return nil
		}
	}
	a.annotate(ctx, "authentication.k8s.io/legacy-token-manual-secret", secret.Name)
	return nil
}

// isSameSlice reports whether a and b share their memory, as they nearly always do here, so that comparing items is not
// needed.
func isSameSlice(a, b []string) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
