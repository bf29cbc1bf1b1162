package run

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"

	"proa.dev/kinds/stream"
	"proa.dev/run/pki"
	"proa.dev/server/agents"
	"proa.dev/server/authz/bootstrap"
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

// nodeRules are what all nodes may do: what those of Kubernetes may, and open a tunnel.
func nodeRules(p *bootstrap.Policy) []rbacv1.PolicyRule {
	return append(slices.Clone(p.NodeRules()), rbacv1.PolicyRule{Verbs: []string{"post"}, NonResourceURLs: []string{stream.TunnelPath}})
}

// Join leads requests for a node to an agent in this process, whose handler takes its caller for the API server. What is
// returned ends that.
func (s *Server) Join(node string, h http.Handler) (leave func(), err error) {
	return s.agents.Join(node, h)
}
