package kubeletapi

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/kinds/lib/gr"
)

// tokenCacheTime is how long the user of a token is cached.
const tokenCacheTime = 2 * time.Minute

// maxToken limits the size of tokens from unauthenticated clients.
const maxToken = 64 << 10

// Identity is an authenticated user.
type Identity = authenticationv1.UserInfo

type inProcessKey struct{}

// InProcess returns the server for a caller in the same process, which counts as authenticated. It must not be reachable
// from anywhere else.
func (s *Server) InProcess(who Identity) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), inProcessKey{}, who)))
	})
}

// authenticator authenticates requests.
type authenticator struct {
	client client.Writer
	cas    func() *x509.CertPool
	known  *cache[[32]byte, Identity]
}

func newAuthenticator(c client.Writer, cas func() *x509.CertPool) *authenticator {
	return &authenticator{client: c, cas: cas, known: newCache[[32]byte, Identity](1024)}
}

var errNoCredentials = errors.New("neither a certificate nor a token")

func (i *authenticator) authenticate(r *http.Request) (Identity, error) {
	if who, inside := r.Context().Value(inProcessKey{}).(Identity); inside {
		return who, nil
	}
	var failed error
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		who, err := i.certificate(r.TLS.PeerCertificates)
		if err == nil {
			return who, nil
		}
		failed = err
	}
	scheme, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if strings.EqualFold(scheme, "bearer") && token != "" {
		return i.token(r.Context(), token)
	}
	if failed != nil {
		return Identity{}, failed
	}
	return Identity{}, errNoCredentials
}

// certificate authenticates a client certificate of the cluster's certificate authorities; its subject has the name and
// groups.
func (i *authenticator) certificate(chain []*x509.Certificate) (Identity, error) {
	if i.cas == nil {
		return Identity{}, errNoCredentials
	}
	o := x509.VerifyOptions{Roots: i.cas(), Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if o.Roots == nil {
		return Identity{}, errNoCredentials // nil would mean the authorities of the host
	}
	for _, c := range chain[1:] {
		o.Intermediates.AddCert(c)
	}
	if _, err := chain[0].Verify(o); err != nil {
		return Identity{}, fmt.Errorf("the certificate of %s: %w", chain[0].Subject.CommonName, err)
	}
	name := chain[0].Subject.CommonName
	if name == "" {
		return Identity{}, errors.New("the certificate names nobody")
	}
	return Identity{Username: name, Groups: append(append([]string{}, chain[0].Subject.Organization...), "system:authenticated")}, nil
}

// token asks the API server for the user of a token.
func (i *authenticator) token(ctx context.Context, token string) (Identity, error) {
	if len(token) > maxToken {
		return Identity{}, errors.New("the token is too long")
	}
	key := sha256.Sum256([]byte(token))
	if who, found := i.known.get(key, time.Now()); found {
		return who, nil
	}
	review := &authenticationv1.TokenReview{ObjectMeta: metav1.ObjectMeta{}, Spec: authenticationv1.TokenReviewSpec{Token: token}}
	out, err := i.client.Create(ctx, gr.TokenReviews, review)
	if err != nil {
		return Identity{}, fmt.Errorf("ask who bears a token: %w", err)
	}
	st := out.(*authenticationv1.TokenReview).Status
	if !st.Authenticated {
		return Identity{}, errors.New("the token is not valid: " + st.Error)
	}
	i.known.put(key, st.User, time.Now().Add(tokenCacheTime))
	return st.User, nil
}
