package satoken

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// The labels of tokens: the day of the last use, which the authenticator notes, and the day since which it does not accept them.
const (
	lastUsedLabel     = "kubernetes.io/legacy-token-last-used"
	invalidSinceLabel = "kubernetes.io/legacy-token-invalid-since"
)

// DefaultCleanUp is how long a token may go unused.
const DefaultCleanUp = 365 * 24 * time.Hour

// daily is how often a token is looked at.
const daily = 24 * time.Hour

// Cleaner returns the loop that takes unused tokens back; a token may go unused for a period.
func Cleaner(period time.Duration) control.Controller {
	return control.Controller{
		Name: "legacy-service-account-token-cleaner", For: gr.Secrets,
		When:   func(_, now kind.Object) bool { return isToken(now) },
		Reads:  []schema.GroupResource{gr.ServiceAccounts, gr.Pods, gr.ConfigMaps},
		Writes: []control.Write{{On: gr.Secrets, Do: "update delete"}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			secret, found := control.Get[*corev1.Secret](c, gr.Secrets, k.Namespace, k.Name)
			if !found || !isToken(secret) || secret.DeletionTimestamp != nil {
				return 0, nil
			}
			w := world{now: time.Now().UTC(), period: period, mounted: func() bool { return mounted(c, secret) }}
			if m, found := control.Get[*corev1.ConfigMap](c, gr.ConfigMaps, metav1.NamespaceSystem, trackingMap); found {
				w.since = m.Data[trackingKey]
			}
			w.account, _ = control.Get[*corev1.ServiceAccount](c, gr.ServiceAccounts, k.Namespace, secret.Annotations[corev1.ServiceAccountNameKey])
			switch decide(secret, w) {
			case mark:
				next := secret.DeepCopy()
				if next.Labels == nil {
					next.Labels = map[string]string{}
				}
				next.Labels[invalidSinceLabel] = w.now.Format(time.DateOnly)
				_, err := c.Update(ctx, gr.Secrets, next, "")
				return daily, control.Gone(err)
			case remove:
				return daily, control.Gone(c.Delete(ctx, gr.Secrets, k.Namespace, k.Name, metav1.DeleteOptions{
					Preconditions: &metav1.Preconditions{UID: new(secret.UID), ResourceVersion: new(secret.ResourceVersion)}, // it may have been used
				}))
			case keep:
			}
			return daily, nil
		},
	}
}

// world is what the fate of a token depends on.
type world struct {
	now     time.Time
	period  time.Duration
	since   string // the first day on which uses are noted; empty if nobody knows
	account *corev1.ServiceAccount
	mounted func() bool
}

type verdict int

const (
	keep verdict = iota
	mark
	remove
)

// decide says what becomes of a token. Days are compared as text.
func decide(secret *corev1.Secret, w world) verdict {
	since, err := time.Parse(time.DateOnly, w.since)
	if err != nil || w.now.Before(since.AddDate(0, 0, 1).Add(w.period)) { // uses are known from the day after on
		return keep
	}
	limit := w.now.Add(-w.period)
	if !secret.CreationTimestamp.Time.Before(limit) {
		return keep
	}
	if used, noted := secret.Labels[lastUsedLabel]; noted {
		if _, err := time.Parse(time.DateOnly, used); err != nil || used >= limit.Format(time.DateOnly) {
			return keep
		}
	}
	if !automatic(secret, w.account) || w.mounted() {
		return keep
	}
	invalid := secret.Labels[invalidSinceLabel]
	if _, err := time.Parse(time.DateOnly, invalid); err != nil {
		return mark
	}
	if invalid >= limit.Format(time.DateOnly) {
		return keep
	}
	return remove
}

// automatic says that the system made a token by itself: only then its account lists it.
func automatic(secret *corev1.Secret, account *corev1.ServiceAccount) bool {
	if account == nil {
		return false
	}
	if uid := secret.Annotations[corev1.ServiceAccountUIDKey]; uid != "" && uid != string(account.UID) {
		return false
	}
	return slices.ContainsFunc(account.Secrets, func(r corev1.ObjectReference) bool { return r.Name == secret.Name })
}

// mounted says that a Pod uses a Secret.
func mounted(c *control.Cluster, secret *corev1.Secret) bool {
	for pod := range control.List[*corev1.Pod](c, gr.Pods, secret.Namespace) {
		if uses(&pod.Spec, secret.Name) {
			return true
		}
	}
	return false
}
