// Package serviceaccounttoken has the controllers of legacy service account tokens, which are stored in Secrets and do not
// expire. Tokens fills such Secrets, and deletes them with their account. Cleaner handles tokens that were generated
// automatically and have not been used for a long time: it marks them as invalid, so that the authenticator rejects them, and
// deletes them after the same time again. Tracker stores the day since which uses are tracked.
package serviceaccounttoken

import (
	"context"
	"iter"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// Issue returns a token of an account for a Secret.
type Issue func(account *corev1.ServiceAccount, secretName string) (string, error)

// Tokens returns the controller that fills and deletes token Secrets; bundle returns the CA certificates in PEM.
func Tokens(issue Issue, bundle func() string) control.Controller {
	return control.Controller{
		Name: "tokens-controller", For: gr.Secrets, Workers: 5,
		When:   func(old, now kind.Object) bool { return isToken(old) || isToken(now) },
		Writes: []control.Write{{On: gr.Secrets, Do: "update delete"}, {On: gr.ServiceAccounts, Do: "get update"}},
		Triggers: []control.Trigger{{
			On:   gr.ServiceAccounts,
			When: func(old, now kind.Object) bool { return old == nil || now == nil || old.GetUID() != now.GetUID() },
			Keys: func(c *control.Cluster, account kind.Object) iter.Seq[control.Key] {
				return func(yield func(control.Key) bool) {
					for o := range c.View(gr.Secrets).By(byAccount(), account.GetNamespace()+"/"+account.GetName()) {
						if !yield(control.KeyOf(o)) {
							return
						}
					}
				}
			},
		}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			secret, found := control.Get[*corev1.Secret](c, gr.Secrets, k.Namespace, k.Name)
			switch {
			case !found:
				return 0, removeFromAccounts(ctx, c, k)
			case !isToken(secret) || secret.Annotations[corev1.ServiceAccountNameKey] == "":
				return 0, nil
			}
			account, err := accountOf(ctx, c, secret)
			if err != nil {
				return 0, err
			}
			if account == nil {
				return 0, control.IgnoreNotFound(c.Delete(ctx, gr.Secrets, k.Namespace, k.Name, metav1.DeleteOptions{
					Preconditions: &metav1.Preconditions{UID: new(secret.UID), ResourceVersion: new(secret.ResourceVersion)},
				}))
			}
			next, err := filledSecret(secret, account, bundle(), issue)
			if next == nil || err != nil {
				return 0, err
			}
			_, err = c.Update(ctx, gr.Secrets, next, "")
			return 0, control.IgnoreNotFound(err)
		},
	}
}

// filledSecret returns the Secret with its missing data, or nil if nothing is missing.
func filledSecret(secret *corev1.Secret, account *corev1.ServiceAccount, bundle string, issue Issue) (*corev1.Secret, error) {
	data := map[string][]byte{}
	if bundle != "" && string(secret.Data[corev1.ServiceAccountRootCAKey]) != bundle {
		data[corev1.ServiceAccountRootCAKey] = []byte(bundle)
	}
	if len(secret.Data[corev1.ServiceAccountNamespaceKey]) == 0 {
		data[corev1.ServiceAccountNamespaceKey] = []byte(secret.Namespace)
	}
	if len(secret.Data[corev1.ServiceAccountTokenKey]) == 0 {
		token, err := issue(account, secret.Name)
		if err != nil {
			return nil, err
		}
		data[corev1.ServiceAccountTokenKey] = []byte(token)
	}
	if len(data) == 0 {
		return nil, nil
	}
	next := secret.DeepCopy()
	if next.Data == nil {
		next.Data = map[string][]byte{}
	}
	for k, v := range data {
		next.Data[k] = v
	}
	next.Annotations[corev1.ServiceAccountNameKey], next.Annotations[corev1.ServiceAccountUIDKey] = account.Name, string(account.UID)
	return next, nil
}

// accountOf returns the account of a token, or nil if the server says that it does not exist.
func accountOf(ctx context.Context, c *control.Cluster, secret *corev1.Secret) (*corev1.ServiceAccount, error) {
	name, uid := secret.Annotations[corev1.ServiceAccountNameKey], types.UID(secret.Annotations[corev1.ServiceAccountUIDKey])
	if a, found := control.Get[*corev1.ServiceAccount](c, gr.ServiceAccounts, secret.Namespace, name); found &&
		(uid == "" || uid == a.UID) {
		return a, nil
	}
	// The view may lag behind, and the deletion of a token cannot be undone.
	o, err := c.Get(ctx, gr.ServiceAccounts, secret.Namespace, name, "")
	if err != nil {
		return nil, control.IgnoreNotFound(err)
	}
	if a, ok := o.(*corev1.ServiceAccount); ok && (uid == "" || uid == a.UID) {
		return a, nil
	}
	return nil, nil
}

// removeFromAccounts removes a deleted token from the secrets of accounts.
func removeFromAccounts(ctx context.Context, c *control.Cluster, k control.Key) error {
	for account := range control.By[*corev1.ServiceAccount](c, gr.ServiceAccounts, bySecret(), k.Namespace+"/"+k.Name) {
		next := account.DeepCopy()
		next.Secrets = slices.DeleteFunc(next.Secrets, func(r corev1.ObjectReference) bool { return r.Name == k.Name })
		if _, err := c.Update(ctx, gr.ServiceAccounts, next, ""); control.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// byAccount indexes tokens by the account in their annotation.
func byAccount() client.Index {
	return client.Index{Name: "token account", Values: func(o kind.Object) []string {
		if name := o.GetAnnotations()[corev1.ServiceAccountNameKey]; name != "" && isToken(o) {
			return []string{o.GetNamespace() + "/" + name}
		}
		return nil
	}}
}

// bySecret indexes accounts by the Secrets they list.
func bySecret() client.Index {
	return client.Index{Name: "listed secret", Values: func(o kind.Object) (out []string) {
		if a, ok := o.(*corev1.ServiceAccount); ok {
			for _, r := range a.Secrets {
				out = append(out, a.Namespace+"/"+r.Name)
			}
		}
		return out
	}}
}

func isToken(o kind.Object) bool {
	s, ok := o.(*corev1.Secret)
	return ok && s.Type == corev1.SecretTypeServiceAccountToken
}
