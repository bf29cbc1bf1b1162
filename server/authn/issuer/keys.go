package issuer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	// maxDocument bounds what an issuer answers.
	maxDocument = 1 << 20
	// Keys are fetched again when a token names another one, but not more often than this: anybody can send such tokens.
	refetch = 5 * time.Second
)

// keys are the public keys of an issuer, as far as they have been fetched.
type keys struct {
	issuer    string
	discovery string // where the issuer describes itself; empty for the usual path
	client    *http.Client
	log       *slog.Logger
	now       func() time.Time

	mu    sync.Mutex // guards what follows, and lets one fetch at a time
	at    string     // where the keys are; empty before that is known
	known []jose.JSONWebKey
	tried time.Time
	err   error // of the last fetch
}

// dialer makes the client that speaks to an issuer.
func dialer(authority string) (*http.Client, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if authority != "" {
		t.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM([]byte(authority)) {
			return nil, errors.New("certificateAuthority has no certificate")
		}
	}
	// A redirect would let whoever answers for the issuer name the keys of anybody, and would be asked from inside the network.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: t, Timeout: 30 * time.Second, CheckRedirect: stay}, nil
}

// verify returns what is signed, if a key of the issuer has signed it.
func (k *keys) verify(ctx context.Context, signed *jose.JSONWebSignature) ([]byte, error) {
	if payload, ok := verify(signed, k.present()); ok {
		return payload, nil
	}
	known, err := k.fetch(ctx)
	if err != nil {
		return nil, err
	}
	if payload, ok := verify(signed, known); ok {
		return payload, nil
	}
	return nil, errors.New("failed to verify signature: failed to verify id token signature")
}

func verify(signed *jose.JSONWebSignature, known []jose.JSONWebKey) ([]byte, bool) {
	id := signed.Signatures[0].Header.KeyID
	for i := range known {
		if id != "" && known[i].KeyID != id || known[i].Use == "enc" {
			continue
		}
		if payload, err := signed.Verify(&known[i]); err == nil {
			return payload, true
		}
	}
	return nil, false
}

func (k *keys) present() []jose.JSONWebKey {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.known
}

// fetch asks the issuer for its keys, unless somebody just has.
func (k *keys) fetch(ctx context.Context) ([]jose.JSONWebKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.tried.IsZero() && k.now().Sub(k.tried) < refetch {
		return k.known, k.err
	}
	known, err := k.ask(ctx)
	if ctx.Err() != nil {
		return nil, ctx.Err() // the client has left; that says nothing about the issuer
	}
	if k.tried, k.err = k.now(), err; err != nil {
		k.log.WarnContext(ctx, "cannot fetch the keys of a token issuer", "issuer", k.issuer, "err", err)
		return nil, err
	}
	k.known = known
	return known, nil
}

func (k *keys) ask(ctx context.Context) ([]jose.JSONWebKey, error) {
	if k.at == "" {
		where := k.discovery
		if where == "" {
			where = strings.TrimSuffix(k.issuer, "/") + "/.well-known/openid-configuration"
		}
		var about struct {
			Issuer string `json:"issuer"`
			Keys   string `json:"jwks_uri"`
		}
		if err := k.get(ctx, where, &about); err != nil {
			return nil, err
		}
		if about.Issuer != k.issuer {
			return nil, fmt.Errorf("oidc: issuer did not match the issuer returned by provider, expected %q got %q", k.issuer, about.Issuer)
		}
		if about.Keys == "" {
			return nil, errors.New("provider did not return JWKS URL")
		}
		k.at = about.Keys
	}
	var set jose.JSONWebKeySet
	if err := k.get(ctx, k.at, &set); err != nil {
		return nil, fmt.Errorf("fetching keys %w", err)
	}
	return set.Keys, nil
}

func (k *keys) get(ctx context.Context, where string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, where, nil)
	if err != nil {
		return err
	}
	res, err := k.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	switch { // the body is not quoted: it ends in logs, and may be from anywhere
	case res.StatusCode >= 300 && res.StatusCode < 400:
		return fmt.Errorf("%s answered %s; redirects are not followed, so give the URL to which it leads as discoveryURL if you trust it", where, res.Status)
	case res.StatusCode != http.StatusOK:
		return fmt.Errorf("%s answered %s", where, res.Status)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxDocument))
	if err != nil {
		return fmt.Errorf("unable to read response body: %w", err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("failed to decode %s: %w", where, err)
	}
	return nil
}
