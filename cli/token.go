package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"time"

	proa "proa.dev/run"
)

func tokenCommand() Command {
	return Command{
		Name: "token", Args: "create", Short: "make a token with which nodes join",
		Long: `
"proa token create" makes a token that lets machines join the cluster as nodes, and prints the command to type on them. The
token ends by itself; nodes that have joined stay. It names the authority of the cluster too, so that a node joins no
other one. Tokens are Secrets in kube-system; deleting one ends it at once.`,
		Setup: func(fs *flag.FlagSet) func(context.Context, *Env, []string) error {
			which := dataDirFlag(fs)
			ttl := fs.Duration("ttl", 24*time.Hour, "the token ends after this `DURATION`")
			server := fs.String("server", "", "the `URL` at which nodes reach the API server; the address of this machine if not said")
			return func(ctx context.Context, env *Env, args []string) error {
				if len(args) == 0 || args[0] != "create" {
					return errors.New("say \"proa token create\"")
				}
				if err := fs.Parse(args[1:]); err != nil {
					return err
				}
				c, err := which()
				if err != nil {
					return err
				}
				return createToken(ctx, env, c, *server, *ttl)
			}
		},
	}
}

func createToken(ctx context.Context, env *Env, c cluster, server string, ttl time.Duration) error {
	if ttl <= 0 {
		return fmt.Errorf("--ttl %s: a token must last for a while", ttl)
	}
	a, err := c.access()
	if err != nil {
		return fmt.Errorf("the cluster in %s has not been started yet: %w", c.dir, err)
	}
	id, err := letters(6)
	if err != nil {
		return err
	}
	secret, err := letters(16)
	if err != nil {
		return err
	}
	token, err := proa.NewToken(id, secret, a.Clusters[0].Cluster.CA)
	if err != nil {
		return err
	}
	text := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
		"metadata": map[string]any{"name": "bootstrap-token-" + id, "namespace": "kube-system"},
		"data": map[string]string{
			"token-id": text(id), "token-secret": text(secret), "expiration": text(time.Now().Add(ttl).UTC().Format(time.RFC3339)),
			"usage-bootstrap-authentication": text("true"), "auth-extra-groups": text(proa.JoinGroup), "description": text("made by proa token create"),
		},
	})
	if err != nil {
		return err
	}
	if err := a.post(ctx, "/api/v1/namespaces/kube-system/secrets", body); err != nil {
		return fmt.Errorf("make the token: %w", err)
	}
	if server == "" {
		server = proa.ReachableURL(a.server())
	}
	fmt.Fprintf(env.Out, "On the machine that shall join, within %s:\n  proa agent --server %s --token %s\n", ttl, server, token)
	return nil
}

// letters makes a random word for a token.
func letters(n int) (string, error) {
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

// post sends an object to the server.
func (a *access) post(ctx context.Context, path string, body []byte) error {
	h, err := a.client()
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.server()+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := h.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err == nil && resp.StatusCode != http.StatusCreated {
		err = fmt.Errorf("the server answers %d: %s", resp.StatusCode, answer)
	}
	return err
}
