package run

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/control/serviceaccounttoken"
	"proa.dev/run/access"
	"proa.dev/server/authn"
	"proa.dev/server/localclient"
	"proa.dev/server/state"
)

// openAuthenticator returns hop 2. It calls certificate with the time that is left of each client certificate it sees.
func (s *Server) openAuthenticator(certificate func(left time.Duration)) (access.Authenticator, error) {
	users, verify, err := access.NewExternalUsers(&s.Config.Config, s.log)
	if err != nil {
		return access.Authenticator{}, err
	}
	s.users = users
	a, err := authn.New(authn.Config{
		ClientCAs: s.pki.CA().Pool, FrontProxyCAs: s.pki.FrontProxyCA().Pool,
		Issuers: []string{s.Issuer}, SigningKey: s.pki.ServiceAccountKey(), VerifyKeys: s.pki.ServiceAccountPublicKeys(),
		Lookup: state.Accounts{State: s.state}, Tokens: verify,
		Certificate: certificate,
		Anonymous:   users.AllowsAnonymous,
		LegacyUsed: func(ctx context.Context, secret *corev1.Secret, day string) {
			serviceaccounttoken.Used(localclient.New(s.pipeline, apiserver()), s.log)(ctx, secret, day)
		},
	})
	return access.Authenticator{Authenticator: a}, err
}
