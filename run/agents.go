package run

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"

	"proa.dev/run/pki"
	"proa.dev/server/agents"
)

// AgentCaller is who the API server is to the agents of nodes: the name and the groups of the certificate it shows them. An
// agent in the same process sees no certificate and must take this for granted.
func AgentCaller() (name string, groups []string) {
	return pki.KubeletClientName, []string{pki.AdminGroup}
}

// openAgents makes the ways to nodes.
func (s *Server) openAgents() *agents.Agents {
	return agents.New(agents.Config{
		Certificate: func() (*tls.Certificate, error) {
			c := s.pki.KubeletClient().TLS()
			return &c, nil
		},
		CAs: func() *x509.CertPool { return s.pki.CA().Pool },
		Log: s.log,
	})
}

// Join leads requests for a node to an agent in this process, whose handler takes its caller for the API server. What is
// returned ends that.
func (s *Server) Join(node string, h http.Handler) (leave func(), err error) {
	return s.agents.Join(node, h)
}
