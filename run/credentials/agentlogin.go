package credentials

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
)

// nodeUserPrefix begins the user names of nodes.
const nodeUserPrefix = "system:node:"

// AgentLogin is what a kubeconfig tells an agent: the URL of the API server, its certificate authorities, and the
// credentials with which the agent logs in at first.
type AgentLogin struct {
	// File is the path of the kubeconfig.
	File string
	// Server is the URL of the API server, and CA its certificate authorities as PEM.
	Server string
	CA     []byte
	// Certificate and Key are the client certificate of the user as PEM, and Pair is the same parsed; empty and nil
	// without one.
	Certificate, Key []byte
	Pair             *tls.Certificate
	// Token returns the current token of the user; nil without one.
	Token func() (string, error)
}

// ReadAgentLogin reads the kubeconfig of an agent. It refuses kubeconfigs that need what an agent does not support,
// such as a proxy.
func ReadAgentLogin(file string) (*AgentLogin, error) {
	f, err := ReadKubeconfig(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no file %s; name the kubeconfig of the cluster to join", file)
	}
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	l, err := f.login(filepath.Dir(file))
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig %s: %w", file, err)
	}
	l.File = file
	return l, nil
}

func (f *Kubeconfig) login(dir string) (*AgentLogin, error) {
	cluster, who, err := f.Current()
	if err != nil {
		return nil, err
	}
	if err := cluster.checkForAgent(); err != nil {
		return nil, err
	}
	l := &AgentLogin{Server: cluster.Server}
	if l.CA, err = DataOrFile(cluster.CA, PathFrom(dir, cluster.CAFile)); err != nil {
		return nil, fmt.Errorf("the certificate-authority: %w", err)
	}
	if len(l.CA) == 0 {
		return nil, errors.New("its cluster has no certificate-authority, by which the agent knows the API server: add certificate-authority-data")
	}
	return l, l.identify(dir, who)
}

// checkForAgent refuses what an agent does not support to reach its API server.
func (c *Cluster) checkForAgent() error {
	u, err := url.Parse(c.Server)
	switch {
	case err != nil || u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("the server %q is not a URL such as https://192.0.2.7:6443", c.Server)
	case c.Insecure:
		return errors.New("insecure-skip-tls-verify would let an agent trust any server: replace it by certificate-authority-data")
	case c.Proxy != "" || c.ServerName != "":
		return errors.New("an agent speaks to the API server under its own name and without a proxy: leave out proxy-url and tls-server-name")
	}
	return nil
}

// identify reads the credentials of the user.
func (l *AgentLogin) identify(dir string, u *User) (err error) {
	if l.Certificate, err = DataOrFile(u.Cert, PathFrom(dir, u.CertFile)); err != nil {
		return fmt.Errorf("the client-certificate: %w", err)
	}
	if l.Key, err = DataOrFile(u.Key, PathFrom(dir, u.KeyFile)); err != nil {
		return fmt.Errorf("the client-key: %w", err)
	}
	if len(l.Certificate) > 0 {
		pair, err := tls.X509KeyPair(l.Certificate, l.Key)
		if err != nil {
			return fmt.Errorf("the client certificate: %w", err)
		}
		l.Pair = &pair
	}
	switch {
	case u.TokenFile != "":
		l.Token = func() (string, error) { // read each time, because it may be replaced
			text, err := os.ReadFile(PathFrom(dir, u.TokenFile))
			return strings.TrimSpace(string(text)), err
		}
	case u.Token != "":
		l.Token = func() (string, error) { return u.Token, nil }
	}
	if l.Pair == nil && l.Token == nil {
		return errors.New("its user has neither a client certificate nor a token; an agent uses no passwords and starts no programs to log in")
	}
	return nil
}

// NodeName returns the name of the node if the user of the kubeconfig is one; otherwise it is empty.
func (l *AgentLogin) NodeName() string {
	if l.Pair == nil || !slices.Contains(l.Pair.Leaf.Subject.Organization, user.NodesGroup) {
		return ""
	}
	name, is := strings.CutPrefix(l.Pair.Leaf.Subject.CommonName, nodeUserPrefix)
	if !is {
		return ""
	}
	return name
}
