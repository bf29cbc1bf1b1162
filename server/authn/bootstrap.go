package authn

import (
	"context"
	"crypto/subtle"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/lib/nodejoin"
)

const (
	bootstrapSecretPrefix = "bootstrap-token-"
	bootstrapSecretType   = "bootstrap.kubernetes.io/token"
	bootstrapGroup        = nodejoin.Group
	bootstrapUserPrefix   = nodejoin.UserPrefix
)

// bootstrapToken is the TokenFunc of the tokens with which nodes join. It never says what is wrong with a token: its
// bearer is unauthenticated.
func (a *Authenticator) bootstrapToken(ctx context.Context, token string, audiences []string) (user.Info, []string, bool, error) {
	id, secret, ok := parseBootstrapToken(token)
	if !ok {
		return nil, nil, false, nil
	}
	obj, err := a.cfg.Lookup.Secret(ctx, metav1.NamespaceSystem, bootstrapSecretPrefix+id)
	if apierrors.IsNotFound(err) {
		return nil, nil, false, nil
	}
	if err != nil {
		return nil, nil, false, err
	}
	groups, ok := bootstrapGroups(obj, id, secret, a.now())
	if !ok {
		return nil, nil, false, nil
	}
	who := &user.DefaultInfo{Name: bootstrapUserPrefix + id, Groups: groups}
	if node, limited := obj.Data[nodejoin.NodeSecretKey]; limited {
		// A token whose node name is malformed is rejected: without the limit it would let any new node join.
		if len(validation.IsDNS1123Subdomain(string(node))) > 0 {
			return nil, nil, false, nil
		}
		who.Extra = map[string][]string{nodejoin.NodeExtra: {string(node)}}
	}
	return who, nil, true, nil
}

// bootstrapGroups decides whether the Secret belongs to the token, and returns the groups of its bearer.
func bootstrapGroups(s *corev1.Secret, id, secret string, now time.Time) ([]string, bool) {
	if s.DeletionTimestamp != nil || s.Type != bootstrapSecretType {
		return nil, false
	}
	if subtle.ConstantTimeCompare(s.Data["token-secret"], []byte(secret)) != 1 || string(s.Data["token-id"]) != id {
		return nil, false
	}
	if end := string(s.Data["expiration"]); end != "" {
		when, err := time.Parse(time.RFC3339, end)
		if err != nil || !when.After(now) {
			return nil, false
		}
	}
	if string(s.Data["usage-bootstrap-authentication"]) != "true" {
		return nil, false
	}
	groups := []string{bootstrapGroup}
	if extra := string(s.Data["auth-extra-groups"]); extra != "" {
		for group := range strings.SplitSeq(extra, ",") {
			// One invalid group makes the token invalid: the valid ones alone may not be what was meant.
			if !isBootstrapGroup(group) {
				return nil, false
			}
			groups = append(groups, group)
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups), true
}

// parseBootstrapToken splits a token of six and sixteen characters of a-z0-9, with a dot between them.
func parseBootstrapToken(token string) (id, secret string, ok bool) {
	if len(token) != 23 || token[6] != '.' {
		return "", "", false
	}
	id, secret = token[:6], token[7:]
	return id, secret, onlyOf(id, "") && onlyOf(secret, "")
}

// isBootstrapGroup matches system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9].
func isBootstrapGroup(group string) bool {
	name, ok := strings.CutPrefix(group, bootstrapGroup+":")
	if !ok || name == "" || len(name) > 256 {
		return false
	}
	return onlyOf(name, ":-") && onlyOf(name[len(name)-1:], "")
}

// onlyOf reports whether s consists of lower-case letters, digits and the extra characters.
func onlyOf(s, extra string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && strings.IndexByte(extra, c) < 0 {
			return false
		}
	}
	return true
}
