// Package satoken looks after the tokens of service accounts that live in Secrets and have no end. Tokens fills such Secrets,
// and deletes them with their account. Cleaner takes back those that the system once made by itself and that nobody has used for
// a long time: first it marks them as invalid, which the authenticator obeys, and as long again after that it deletes them. Tracker
// keeps the day since which uses are noted.
package satoken

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
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// Issue makes the token of an account for a Secret.
type Issue func(account *corev1.ServiceAccount, secretName string) (string, error)

// Tokens returns the loop that fills and deletes Secrets; bundle is the CA certificates in PEM.
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
				return 0, forget(ctx, c, k)
			case !isToken(secret) || secret.Annotations[corev1.ServiceAccountNameKey] == "":
				return 0, nil
			}
			account, err := owner(ctx, c, secret)
			if err != nil {
				return 0, err
			}
			if account == nil {
				return 0, control.Gone(c.Delete(ctx, gr.Secrets, k.Namespace, k.Name, metav1.DeleteOptions{
					Preconditions: &metav1.Preconditions{UID: new(secret.UID), ResourceVersion: new(secret.ResourceVersion)},
				}))
			}
			next, err := fill(secret, account, bundle(), issue)
			if next == nil || err != nil {
				return 0, err
			}
			_, err = c.Update(ctx, gr.Secrets, next, "")
			return 0, control.Gone(err)
		},
	}
}

// fill returns the Secret with what it lacks, or nil if that is nothing.
func fill(secret *corev1.Secret, account *corev1.ServiceAccount, bundle string, issue Issue) (*corev1.Secret, error) {
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

// owner is the account of a token, or nil if it is gone for sure.
func owner(ctx context.Context, c *control.Cluster, secret *corev1.Secret) (*corev1.ServiceAccount, error) {
	name, uid := secret.Annotations[corev1.ServiceAccountNameKey], types.UID(secret.Annotations[corev1.ServiceAccountUIDKey])
	if a, found := control.Get[*corev1.ServiceAccount](c, gr.ServiceAccounts, secret.Namespace, name); found && (uid == "" || uid == a.UID) {
		return a, nil
	}
	// The view may be behind, and a token that is deleted is lost.
	o, err := c.Get(ctx, gr.ServiceAccounts, secret.Namespace, name, "")
	if err != nil {
		return nil, control.Gone(err)
	}
	if a, ok := o.(*corev1.ServiceAccount); ok && (uid == "" || uid == a.UID) {
		return a, nil
	}
	return nil, nil
}

// forget takes a token that was deleted out of the lists of accounts.
func forget(ctx context.Context, c *control.Cluster, k control.Key) error {
	for account := range control.By[*corev1.ServiceAccount](c, gr.ServiceAccounts, bySecret(), k.Namespace+"/"+k.Name) {
		next := account.DeepCopy()
		next.Secrets = slices.DeleteFunc(next.Secrets, func(r corev1.ObjectReference) bool { return r.Name == k.Name })
		if _, err := c.Update(ctx, gr.ServiceAccounts, next, ""); control.Gone(err) != nil {
			return err
		}
	}
	return nil
}

// byAccount finds tokens by the account they say they belong to.
func byAccount() client.Index {
	return client.Index{Name: "token account", Of: func(o kind.Object) []string {
		if name := o.GetAnnotations()[corev1.ServiceAccountNameKey]; name != "" && isToken(o) {
			return []string{o.GetNamespace() + "/" + name}
		}
		return nil
	}}
}

// bySecret finds accounts by the Secrets they list.
func bySecret() client.Index {
	return client.Index{Name: "listed secret", Of: func(o kind.Object) (out []string) {
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
