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
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	// maxDocument is the size of the largest document that is read from an issuer.
	maxDocument = 1 << 20
	// minFetchInterval is the time between two fetches of the keys. A token with an unknown key ID causes a fetch, and
	// anybody can send such tokens.
	minFetchInterval = 5 * time.Second
	// maxKeys bounds the keys of an issuer: a token without a key ID is verified with each of them, and anybody can send such tokens. The
	// library bounds the size of a key.
	maxKeys = 256
)

// keys caches the public keys of an issuer.
type keys struct {
	issuer    string
	discovery string // where the issuer's metadata is; empty for the usual path
	client    *http.Client
	log       *slog.Logger
	now       func() time.Time

	known atomic.Pointer[[]jose.JSONWebKey] // nil before the first fetch
	// turn holds a value while a request fetches the keys. Nobody waits for it who has a token that a known key has signed.
	turn chan struct{}

	// The holder of the turn may use what follows.
	jwksURL   string // the URL of the keys; empty before it is known
	lastFetch time.Time
	err       error // of the last fetch
}

func newKeys(t *trusted, client *http.Client, log *slog.Logger) *keys {
	return &keys{issuer: t.Issuer.URL, discovery: t.Issuer.DiscoveryURL, client: client, log: log, now: time.Now,
		turn: make(chan struct{}, 1)}
}

// newClient returns the HTTP client for an issuer.
func newClient(authority string) (*http.Client, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if authority != "" {
		t.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM([]byte(authority)) {
			return nil, errors.New("certificateAuthority has no certificate")
		}
	}
	// Redirects are not followed: they would let whoever answers for the issuer substitute other keys, and make this
	// server send requests inside the network.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: t, Timeout: 30 * time.Second, CheckRedirect: stay}, nil
}

// verify returns the payload of a signed token if a key of the issuer has signed it.
func (k *keys) verify(ctx context.Context, signed *jose.JSONWebSignature) ([]byte, error) {
	if payload, ok := verify(signed, k.cached()); ok {
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

func (k *keys) cached() []jose.JSONWebKey {
	if known := k.known.Load(); known != nil {
		return *known
	}
	return nil
}

// fetch fetches the keys from the issuer, unless that was done a moment ago. A fetch goes on when its client disconnects, since otherwise
// clients that do so could make the server fetch all the time.
func (k *keys) fetch(ctx context.Context) ([]jose.JSONWebKey, error) {
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !k.lastFetch.IsZero() && k.now().Sub(k.lastFetch) < minFetchInterval {
		return k.cached(), k.err
	}
	ctx = context.WithoutCancel(ctx) // the HTTP client has a timeout
	known, err := k.fetchKeys(ctx)
	if k.lastFetch, k.err = k.now(), err; err != nil {
		k.log.WarnContext(ctx, "cannot fetch the keys of a token issuer", "issuer", k.issuer, "err", err)
		return nil, err
	}
	k.known.Store(&known)
	return known, nil
}

func (k *keys) fetchKeys(ctx context.Context) ([]jose.JSONWebKey, error) {
	if k.jwksURL == "" {
		where := k.discovery
		if where == "" {
			where = strings.TrimSuffix(k.issuer, "/") + "/.well-known/openid-configuration"
		}
		var about struct {
			Issuer string `json:"issuer"`
			Keys   string `json:"jwks_uri"`
		}
		if err := k.fetchJSON(ctx, where, &about); err != nil {
			return nil, err
		}
		if about.Issuer != k.issuer {
			return nil, fmt.Errorf("oidc: issuer did not match the issuer returned by provider, expected %q got %q", k.issuer, about.Issuer)
		}
		if about.Keys == "" {
			return nil, errors.New("provider did not return JWKS URL")
		}
		k.jwksURL = about.Keys
	}
	var set jose.JSONWebKeySet
	if err := k.fetchJSON(ctx, k.jwksURL, &set); err != nil {
		return nil, fmt.Errorf("fetching keys %w", err)
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("%s has %d keys, more than %d", k.jwksURL, len(set.Keys), maxKeys)
	}
	return set.Keys, nil
}

func (k *keys) fetchJSON(ctx context.Context, where string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, where, nil)
	if err != nil {
		return err
	}
	res, err := k.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	switch { // the body is not quoted: it would end in logs, and may be from anywhere
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
