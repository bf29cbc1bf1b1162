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

// maxToken bounds what is parsed before anything is known about who sent it.
const maxToken = 64 << 10

const (
	protocolHeader       = "Sec-Websocket-Protocol"
	bearerProtocolPrefix = "base64url.bearer.authorization.k8s.io."
)

// bearerToken reads the Authorization header. Other schemes than Bearer are not credentials here.
// spaced tells that the token was lost to a second space, a mistake worth a warning.
func bearerToken(h http.Header) (token string, spaced bool) {
	scheme, rest, ok := strings.Cut(strings.TrimSpace(h.Get("Authorization")), " ")
	if !ok || !strings.EqualFold(scheme, "bearer") {
		return "", false
	}
	token, _, more := strings.Cut(rest, " ")
	return token, token == "" && more
}

// isWebSocket tells whether the request wants to become a WebSocket.
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

// webSocketToken reads the token browsers send as a subprotocol, because they cannot set headers.
// protocols is the header without it, to be echoed to the client.
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

// token identifies the bearer of a token that is meant for this API server.
func (a *Authenticator) token(ctx context.Context, token string) (user.Info, error) {
	who, _, err := a.verifyToken(ctx, token, a.audiences)
	return who, err
}

// ReviewToken answers a TokenReview: who bears the token, and for which of the wanted audiences it is
// good. No audiences mean those of the API server. The error is what the review's status shows.
func (a *Authenticator) ReviewToken(ctx context.Context, token string, audiences []string) (who user.Info, accepted []string, ok bool, err error) {
	// A review takes the token as a header would carry it: up to the first space.
	token, _, _ = strings.Cut(strings.TrimSpace(token), " ")
	if token == "" {
		return nil, nil, false, errInvalidToken
	}
	if len(audiences) == 0 {
		audiences = a.audiences
	}
	if who, accepted, err = a.verifyToken(ctx, token, audiences); err != nil {
		// The words in which clients know it: that nobody knows the token, and then what those say who do.
		return nil, nil, false, utilerrors.NewAggregate([]error{errInvalidToken, err})
	}
	return who, accepted, true, nil
}

// verifyToken tries every kind of token. A kind that does not recognise the token says nothing, so
// the error is that of the kind that did.
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
	for _, verify := range a.others {
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
		return allAuthenticated(who), accepted, nil
	}
	if len(errs) > 0 {
		return nil, nil, utilerrors.NewAggregate(errs)
	}
	return nil, nil, errInvalidToken
}

// allAuthenticated is authenticated for identities of unknown make.
func allAuthenticated(who user.Info) user.Info {
	return authenticated(&user.DefaultInfo{Name: who.GetName(), UID: who.GetUID(), Groups: slices.Clone(who.GetGroups()), Extra: who.GetExtra()})
}

// intersect lists what both have, in the order of want.
func intersect(have, want []string) []string {
	out := []string{}
	for _, w := range want {
		if slices.Contains(have, w) {
			out = append(out, w)
		}
	}
	return out
}
