package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/cli/command"
	"proa.dev/cli/localcluster"
	"proa.dev/kinds/lib/nodejoin"
)

const tokenSecrets = "/api/v1/namespaces/kube-system/secrets"

// listedToken is a row of "proa token list". The secret part of a token is not shown.
type listedToken struct {
	ID          string `json:"id"`
	Expires     string `json:"expires,omitempty"`
	Node        string `json:"node,omitempty"`
	Usages      string `json:"usages,omitempty"`
	Description string `json:"description,omitempty"`
}

func listTokens(ctx context.Context, env *command.Env, c localcluster.Cluster, output string) error {
	a, err := c.Access()
	if err != nil {
		return fmt.Errorf("the cluster in %s has no API server yet: %w", c.Dir, err)
	}
	body, err := a.GetOK(ctx, tokenSecrets+"?fieldSelector=type%3Dbootstrap.kubernetes.io%2Ftoken&limit=1000")
	if err != nil {
		return fmt.Errorf("list the tokens: %w", err)
	}
	var list corev1.SecretList
	if err := json.Unmarshal(body, &list); err != nil {
		return fmt.Errorf("list the tokens: %w", err)
	}
	all := []listedToken{}
	for i := range list.Items {
		all = append(all, describeToken(&list.Items[i]))
	}
	if output == "json" {
		return command.WriteJSON(env.Out, all)
	}
	if len(all) == 0 {
		fmt.Fprintf(env.Out, "There is no token; \"%s token create%s\" makes one.\n", localcluster.Program(), c.CommandFlags())
		return nil
	}
	w := tabwriter.NewWriter(env.Out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tENDS\tNODE\tUSED FOR\tDESCRIPTION")
	for _, t := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", command.Printable(t.ID), command.Printable(describeExpiry(t.Expires, time.Now())),
			command.Printable(cmp.Or(t.Node, "any new one")), command.Printable(t.Usages), command.Printable(t.Description))
	}
	return w.Flush()
}

func describeToken(s *corev1.Secret) listedToken {
	t := listedToken{
		ID: string(s.Data["token-id"]), Expires: string(s.Data["expiration"]), Node: string(s.Data[nodejoin.NodeSecretKey]),
		Description: string(s.Data["description"]),
	}
	var usages []string
	for key, value := range s.Data {
		if use, ok := strings.CutPrefix(key, "usage-bootstrap-"); ok && string(value) == "true" {
			usages = append(usages, use)
		}
	}
	slices.Sort(usages)
	t.Usages = strings.Join(usages, ",")
	return t
}

// describeExpiry returns when a token expires, in words.
func describeExpiry(expires string, now time.Time) string {
	if expires == "" {
		return "never"
	}
	at, err := time.Parse(time.RFC3339, expires)
	switch left := at.Sub(now); {
	case err != nil:
		return expires
	case left <= 0:
		return "has ended"
	case left < time.Hour:
		return "in " + left.Round(time.Minute).String()
	default:
		return "in " + left.Round(time.Hour).String()
	}
}

// deleteTokens deletes tokens by their IDs.
func deleteTokens(ctx context.Context, env *command.Env, c localcluster.Cluster, ids []string) error {
	a, err := c.Access()
	if err != nil {
		return fmt.Errorf("the cluster in %s has no API server yet: %w", c.Dir, err)
	}
	for _, id := range ids {
		id, err := tokenID(id)
		if err != nil {
			return err
		}
		code, body, err := a.Send(ctx, http.MethodDelete, tokenSecrets+"/bootstrap-token-"+id, nil)
		switch {
		case err != nil:
			return fmt.Errorf("delete token %s: %w", id, err)
		case code == http.StatusNotFound:
			return fmt.Errorf("there is no token %s; \"proa token list\" shows them", id)
		case code != http.StatusOK:
			return fmt.Errorf("delete token %s: the server answers %d: %s", id, code, body)
		}
		fmt.Fprintf(env.Out, "Deleted token %s. Nodes that have joined with it stay.\n", id)
	}
	return nil
}

// tokenID returns the six characters that identify a token, from the ID or the whole token that a user gives.
func tokenID(text string) (string, error) {
	id, _, _ := strings.Cut(text, ".")
	if !regexp.MustCompile(`^[a-z0-9]{6}$`).MatchString(id) {
		return "", fmt.Errorf("%.6q is no token: an ID has six characters, from a to z and 0 to 9", text)
	}
	return id, nil
}
