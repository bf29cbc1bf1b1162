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

	"proa.dev/kinds/lib/streamoptions"
	"proa.dev/kinds/nodereport"
	"proa.dev/run/pki"
	"proa.dev/server/authz/bootstrappolicy"
	"proa.dev/server/nodeconnection"
	"proa.dev/server/peerrecords"
	"proa.dev/server/state"
)

// AgentCaller returns the user name and the groups in the certificate that the API server shows to agents. An agent in
// the same process sees no certificate, and assumes them.
func AgentCaller() (name string, groups []string) {
	return pki.KubeletClientName, []string{pki.AdminGroup}
}

// openAgents returns the connections to the agents of nodes.
func (s *Server) openAgents() *nodeconnection.Agents {
	return nodeconnection.New(nodeconnection.Config{
		Certificate: func() (*tls.Certificate, error) {
			c := s.pki.KubeletClient().TLS()
			return &c, nil
		},
		CAs:    func() *x509.CertPool { return s.agentTrust.pool(s.pki.CA(), s.pki.KubeletCA()) },
		Verify: func(chain []*x509.Certificate) (user.Info, error) { return s.auth.ClientCertificate(chain) },
		Node: func(ctx context.Context, name string) (*corev1.Node, error) {
			return state.Accounts{State: s.state}.Node(ctx, name)
		},
		Foreign: s.ForeignKubelets, ServiceCIDRs: s.ServiceCIDRs, Log: s.log,
	})
}

// openPeers returns the other servers that use the same store; nil if there can be none. To them, too, a server shows KubeletClient.
func (s *Server) openPeers() *peerrecords.Peers {
	if len(s.EtcdServers) == 0 || s.listener == nil {
		return nil
	}
	at := s.localAddress()
	if s.listensEverywhere() || s.podListener != nil {
		at = s.Reachable()
	}
	return peerrecords.New(peerrecords.Config{
		Address: at, User: pki.KubeletClientName, Client: s.OwnClient, Records: s.recorder, Attempt: s.lastAttempt, Log: s.log,
		Certificate: func() tls.Certificate { return s.pki.KubeletClient().TLS() },
		CAs:         func() *x509.CertPool { return s.pki.CA().Pool },
		Verify:      func(chain []*x509.Certificate) (user.Info, error) { return s.auth.ClientCertificate(chain) },
	})
}

// agentTrust holds the certificate authorities that the server trusts when it connects to agents.
type agentTrust struct {
	mu sync.Mutex // guards what follows
	// cluster and kubelet are the authorities in the pool.
	cluster, kubelet *pki.Authority
	made             *x509.CertPool
}

// pool returns the authorities that may sign the serving certificates of agents: the one for agents and, because agents
// of former versions still have such certificates, that of the cluster. In either case the certificate must name the
// node. The pool stays the same as long as the authorities do, so that connections are reused.
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

// nodeRules returns what all nodes may do: the rules of Kubernetes, reporting their work, and opening a tunnel.
func nodeRules(p *bootstrappolicy.Policy) []rbacv1.PolicyRule {
	reports := nodereport.Resource()
	return append(slices.Clone(p.NodeRules()),
		rbacv1.PolicyRule{Verbs: []string{"create"}, APIGroups: []string{reports.Group}, Resources: []string{reports.Resource}},
		rbacv1.PolicyRule{Verbs: []string{"post"}, NonResourceURLs: []string{streamoptions.TunnelPath}})
}

// JoinAgent sends requests for a node to the handler of an agent in this process until leave is called. The handler takes
// its caller for the API server.
func (s *Server) JoinAgent(node string, h http.Handler) (leave func(), err error) {
	return s.agents.Join(node, h)
}
