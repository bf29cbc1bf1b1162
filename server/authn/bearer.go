package authn

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/user"
)

// maxToken is the size of the longest token that is parsed, since anybody can send one.
const maxToken = 64 << 10

const (
	protocolHeader       = "Sec-Websocket-Protocol"
	bearerProtocolPrefix = "base64url.bearer.authorization.k8s.io."
)

// bearerToken reads the Authorization header. Other schemes than Bearer are not credentials here. spaced says that a
// second space stands where the token should begin, a mistake worth a warning.
func bearerToken(h http.Header) (token string, spaced bool) {
	scheme, rest, ok := strings.Cut(strings.TrimSpace(h.Get("Authorization")), " ")
	if !ok || !strings.EqualFold(scheme, "bearer") {
		return "", false
	}
	token, _, more := strings.Cut(rest, " ")
	return token, token == "" && more
}

// isWebSocket reports whether the request asks for an upgrade to a WebSocket.
func isWebSocket(h http.Header) bool {
	if !strings.EqualFold(h.Get("Upgrade"), "websocket") {
		return false
	}
	for _, line := range h["Connection"] {
		for option := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(option), "upgrade") {
				return true
			}
		}
	}
	return false
}

// webSocketToken reads the token that browsers send as a subprotocol, because they cannot set headers. protocols is the
// header without it, to be echoed to the client.
func webSocketToken(h http.Header) (token, protocols string, err error) {
	var others []string
	seen := false
	for _, line := range h[protocolHeader] {
		for protocol := range strings.SplitSeq(line, ",") {
			protocol = strings.TrimSpace(protocol)
			encoded, ok := strings.CutPrefix(protocol, bearerProtocolPrefix)
			if !ok {
				others = append(others, protocol)
				continue
			}
			if seen {
				return "", "", errors.New("multiple base64.bearer.authorization tokens specified")
			}
			seen = true
			decoded, err := base64.RawURLEncoding.DecodeString(encoded)
			if err != nil {
				return "", "", errors.New("invalid base64.bearer.authorization token encoding")
			}
			if !utf8.Valid(decoded) {
				return "", "", errors.New("invalid base64.bearer.authorization token")
			}
			token = string(decoded)
		}
	}
	// The server has to answer with one of the offered protocols, and it must not be the token.
	if token != "" && len(others) == 0 {
		return "", "", errors.New("missing additional subprotocol")
	}
	return token, strings.Join(others, ","), nil
}

// token authenticates a bearer token that is meant for this API server.
func (a *Authenticator) token(ctx context.Context, token string) (user.Info, error) {
	who, _, err := a.verifyToken(ctx, token, a.audiences)
	return who, err
}

// ReviewToken answers a TokenReview: whose token it is, and for which of the requested audiences it is valid. No
// audiences mean those of the API server. The error is shown in the status of the review.
func (a *Authenticator) ReviewToken(ctx context.Context, token string, audiences []string) (who user.Info, accepted []string, ok bool,
	err error) {
	// A review accepts the token as a header would carry it: up to the first space.
	token, _, _ = strings.Cut(strings.TrimSpace(token), " ")
	if token == "" {
		return nil, nil, false, errInvalidToken
	}
	if len(audiences) == 0 {
		audiences = a.audiences
	}
	if who, accepted, err = a.verifyToken(ctx, token, audiences); err != nil {
		// Upstream's text: that the token is not known, followed by the errors of those verifiers that recognised it.
		return nil, nil, false, utilerrors.NewAggregate([]error{errInvalidToken, err})
	}
	return who, accepted, true, nil
}

// verifyToken tries every kind of token. A verifier that does not recognise the token returns no error, so the error is
// from one that did.
func (a *Authenticator) verifyToken(ctx context.Context, token string, audiences []string) (user.Info, []string, error) {
	if len(token) > maxToken {
		return nil, nil, errInvalidToken
	}
	who, accepted, ok, err := a.serviceAccountToken(ctx, token, audiences)
	if ok {
		return who, accepted, nil
	}
	var errs []error
	if err != nil {
		errs = append(errs, err)
	}
	for _, verify := range a.otherTokens {
		who, accepted, ok, err := verify(ctx, token, audiences)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !ok {
			continue
		}
		if accepted == nil {
			if accepted = intersect(a.audiences, audiences); len(accepted) == 0 && len(audiences) > 0 {
				continue
			}
		}
		return copyWithAuthenticatedGroup(who), accepted, nil
	}
	if len(errs) > 0 {
		return nil, nil, utilerrors.NewAggregate(errs)
	}
	return nil, nil, errInvalidToken
}

// copyWithAuthenticatedGroup is withAuthenticatedGroup for identities that are not a DefaultInfo or must not be
// changed.
func copyWithAuthenticatedGroup(who user.Info) user.Info {
	return withAuthenticatedGroup(&user.DefaultInfo{Name: who.GetName(), UID: who.GetUID(), Groups: slices.Clone(who.GetGroups()),
		Extra: who.GetExtra()})
}

// intersect returns the items of want that have contains, in the order of want.
func intersect(have, want []string) []string {
	out := []string{}
	for _, w := range want {
		if slices.Contains(have, w) {
			out = append(out, w)
		}
	}
	return out
}
