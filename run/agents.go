package run

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/stream"
	"proa.dev/run/pki"
	"proa.dev/server"
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
		CAs:    func() *x509.CertPool { return s.agentTrust.pool(s.pki.CA(), s.pki.KubeletCA()) },
		Verify: func(chain []*x509.Certificate) (user.Info, error) { return s.auth.ClientCertificate(chain) },
		Node: func(ctx context.Context, name string) (*corev1.Node, error) {
			return server.Accounts{State: s.state}.Node(ctx, name)
		},
		ServiceCIDRs: s.ServiceCIDRs, Log: s.log,
	})
}

// agentTrust is whom the server believes when it connects to the agents of nodes.
type agentTrust struct {
	mu sync.Mutex // guards what follows
	// cluster and kubelet are the authorities that made was made of.
	cluster, kubelet *pki.Authority
	made             *x509.CertPool
}

// pool trusts the authority of agents. It trusts that of the cluster too: agents of former versions serve with certificates that it
// has signed, until they ask for new ones. Whoever is dialed must show the name of just its node in either case. The pool is the
// same one as long as the authorities are, so that connections are kept.
func (t *agentTrust) pool(cluster, kubelet *pki.Authority) *x509.CertPool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.made == nil || t.cluster != cluster || t.kubelet != kubelet {
		t.cluster, t.kubelet, t.made = cluster, kubelet, x509.NewCertPool()
		t.made.AppendCertsFromPEM(cluster.PEM)
		t.made.AppendCertsFromPEM(kubelet.PEM)
	}
	return t.made
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
