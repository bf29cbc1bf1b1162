package cli

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"time"

	"proa.dev/cli/command"
	"proa.dev/cli/localcluster"
	"proa.dev/kinds/lib/nodejoin"
	"proa.dev/run/bootstraproles"
	"proa.dev/run/credentials"
	"proa.dev/run/hostaddress"
)

func tokenCommand() command.Command {
	return command.Command{
		Name: "token", Args: "create | list | delete ID...", Words: []string{"create", "list", "delete"},
		Short: "make, list or delete tokens with which nodes join",
		Long: `
"proa token create" makes a token that lets machines join the cluster as nodes, and prints the command to type on them. The
token ends by itself; nodes that have joined stay. It names the authority of the cluster too, so that a node joins no
other one. Tokens are Secrets in kube-system.

"proa token list" shows the tokens, by the six characters before their dot, and when they end. "proa token delete ID" ends one at
once; it takes the whole token, too.

A token joins nodes with new names only: whoever holds it cannot become a node that exists and read its Secrets. A node
that exists renews its certificate by itself. If it has lost that (its data folder is gone, or it was off until the
certificate had expired), let it join again with "proa token create --node NAME", a token that joins this one node,
whether it exists or not, and no other. Make such a token for new nodes too when you know their names: it is worth less
to others.`,
		Setup: func(fs *flag.FlagSet) func(context.Context, *command.Env, []string) error {
			which, format := localcluster.DataDirFlag(fs), command.OutputFlag(fs)
			ttl := fs.Duration("ttl", 24*time.Hour, "the token ends after this `DURATION`")
			node := fs.String("node", "", "the token joins only the node `NAME`, which may exist already")
			server := fs.String("server", "", "the `URL` at which nodes reach the API server (default the address of this machine)")
			return func(ctx context.Context, env *command.Env, args []string) error {
				c, err := which()
				if err != nil {
					return err
				}
				switch {
				case len(args) == 1 && args[0] == "create":
					return createToken(ctx, env, c, tokenOptions{*server, *node, *ttl})
				case len(args) == 1 && args[0] == "list":
					output, err := format()
					if err != nil {
						return err
					}
					return listTokens(ctx, env, c, output)
				case len(args) > 1 && args[0] == "delete":
					return deleteTokens(ctx, env, c, args[1:])
				}
				return errors.New("use \"proa token create\", \"proa token list\" or \"proa token delete ID\"")
			}
		},
	}
}

// tokenOptions are the flags of "proa token create".
type tokenOptions struct {
	server, node string
	ttl          time.Duration
}

func (o *tokenOptions) check() error {
	if o.ttl <= 0 {
		return fmt.Errorf("--ttl %s: a token must be valid for some time; give a positive duration", o.ttl)
	}
	if o.node == "" {
		return nil
	}
	if why := nodejoin.CheckName(o.node); why != "" {
		return fmt.Errorf("--node %s: no node may have this name: %s", o.node, why)
	}
	return nil
}

func createToken(ctx context.Context, env *command.Env, c localcluster.Cluster, o tokenOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	a, err := c.Access()
	if err != nil {
		return fmt.Errorf("the cluster in %s has no API server yet: %w", c.Dir, err)
	}
	id, err := randomWord(6)
	if err != nil {
		return err
	}
	secret, err := randomWord(16)
	if err != nil {
		return err
	}
	token, err := credentials.NewJoinToken(id, secret, a.Clusters[0].Cluster.CA)
	if err != nil {
		return err
	}
	text := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	data := map[string]string{
		"token-id": text(id), "token-secret": text(secret), "expiration": text(time.Now().Add(o.ttl).UTC().Format(time.RFC3339)),
		"usage-bootstrap-authentication": text("true"), "auth-extra-groups": text(bootstraproles.JoinGroup),
		"description": text("made by proa token create"),
	}
	name := ""
	if o.node != "" {
		data[nodejoin.NodeSecretKey], name = text(o.node), " --node "+o.node
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
		"metadata": map[string]any{"name": "bootstrap-token-" + id, "namespace": "kube-system"}, "data": data,
	})
	if err != nil {
		return err
	}
	if err := a.Post(ctx, "/api/v1/namespaces/kube-system/secrets", body); err != nil {
		return fmt.Errorf("make the token: %w", err)
	}
	if o.server == "" {
		o.server = hostaddress.ReachableURL(a.Server())
		if why := unreachableAdvice(ctx, a.Server(), o.server); why != "" {
			fmt.Fprintf(env.Err, "Warning: %s\n", why)
		}
	}
	fmt.Fprintf(env.Out, "On the machine that shall join, within %s:\n  proa agent --server %s --token %s%s\n", o.ttl, o.server, token, name)
	return nil
}

// unreachableAdvice returns advice if the server does not listen at the address at which nodes would look for it, such as one
// that listens only on loopback; empty if it does.
func unreachableAdvice(ctx context.Context, own, reachable string) string {
	u, err := url.Parse(reachable)
	if err != nil {
		return err.Error()
	}
	c, err := (&net.Dialer{Timeout: 3 * time.Second}).DialContext(ctx, "tcp", u.Host)
	if err == nil {
		_ = c.Close() // only whether it can be opened counts
		return ""
	}
	return fmt.Sprintf("other machines do not reach the API server at %s (%v): it is at %s. "+
		"Start it with --listen 0.0.0.0:%s, or give with --server the URL at which nodes reach it", reachable, err, own, u.Port())
}

// randomWord returns a random word for a token.
func randomWord(n int) (string, error) {
	const all = "abcdefghijklmnopqrstuvwxyz0123456789"
	out := make([]byte, 0, n)
	for len(out) < n {
		raw := make([]byte, n)
		if _, err := rand.Read(raw); err != nil {
			return "", err
		}
		for _, b := range raw {
			if int(b) < 252 && len(out) < n { // 252 is a multiple of 36: every letter is as likely as the others
				out = append(out, all[int(b)%len(all)])
			}
		}
	}
	return string(out), nil
}
