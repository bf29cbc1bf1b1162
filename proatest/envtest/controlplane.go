package envtest

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"proa.dev/proatest"
	"proa.dev/run"
	"proa.dev/run/settings"
)

// ControlPlane is the control plane of an Environment.
type ControlPlane struct {
	// APIServer has the arguments of the API server. Etcd and KubectlPath have no effect.
	APIServer   *APIServer
	Etcd        *Etcd
	KubectlPath string

	cluster *proatest.Cluster // nil while it does not run
}

// APIServer is the API server of an Environment.
type APIServer struct {
	// SecureServing is the address of the API server. Start chooses one unless it is set.
	SecureServing
	// URL is the same as a URL. Start sets it.
	URL *url.URL

	// Args are arguments like --feature-gates=A=true. Configure is the better way to give them.
	Args []string
	// Out has no effect. Err gets the log; nil to discard it.
	Out, Err io.Writer

	// Path, CertDir, StartTimeout and StopTimeout have no effect.
	Path, CertDir             string
	StartTimeout, StopTimeout time.Duration

	arguments Arguments
}

// Etcd is accepted and has no effect: the control plane keeps its objects itself.
type Etcd struct {
	URL                       *url.URL
	Path                      string
	Args                      []string
	DataDir                   string
	StartTimeout, StopTimeout time.Duration
	Out, Err                  io.Writer

	arguments Arguments
}

// SecureServing is the address of an API server, and the certificate of its certificate authority.
type SecureServing struct {
	ListenAddr
	CA []byte
}

// ListenAddr is an address and a port.
type ListenAddr struct{ Address, Port string }

// URL returns a URL at the address.
func (l *ListenAddr) URL(scheme, path string) *url.URL {
	return &url.URL{Scheme: scheme, Host: l.HostPort(), Path: path}
}

// HostPort returns the address with its port.
func (l *ListenAddr) HostPort() string { return net.JoinHostPort(l.Address, l.Port) }

// Configure returns the arguments, to be changed before Start. They have no effect.
func (e *Etcd) Configure() *Arguments { return &e.arguments }

// Configure returns the arguments of the API server, to be changed before Start. Arguments that are settings of proa have an effect,
// others are an error of Start.
func (s *APIServer) Configure() *Arguments { return &s.arguments }

// Arguments are the flags of a program, with their values by name.
type Arguments struct{ values map[string][]string }

// Set replaces the values of a flag.
func (a *Arguments) Set(key string, values ...string) *Arguments {
	if a.values == nil {
		a.values = map[string][]string{}
	}
	a.values[key] = slices.Clone(values)
	return a
}

// Append adds values to a flag.
func (a *Arguments) Append(key string, values ...string) *Arguments {
	return a.Set(key, slices.Concat(a.values[key], values)...)
}

// AppendNoDefaults is the same as Append, because there are no defaults.
func (a *Arguments) AppendNoDefaults(key string, values ...string) *Arguments {
	return a.Append(key, values...)
}

// Enable sets a flag to true.
func (a *Arguments) Enable(key string) *Arguments { return a.Set(key, "true") }

// Disable removes a flag.
func (a *Arguments) Disable(key string) *Arguments {
	delete(a.values, key)
	return a
}

// settings turns the arguments into an option of the cluster.
func (s *APIServer) settings() (proatest.Option, error) {
	all := Arguments{values: maps.Clone(s.arguments.values)}
	for _, arg := range s.Args {
		key, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		all.Append(key, value)
	}
	var set []func(*run.Config) error
	if s.Port != "" {
		all.Set("listen", net.JoinHostPort(cmp.Or(s.Address, loopback), s.Port))
	}
	for _, key := range slices.Sorted(maps.Keys(all.values)) {
		name := key
		if name == "service-cluster-ip-range" {
			name = "service-cidr"
		}
		at := slices.IndexFunc(settings.All(), func(s settings.Setting) bool { return s.Name == name })
		if at < 0 {
			return nil, fmt.Errorf("the API server of proa has no flag --%s; take it out, or use Environment.Options", key)
		}
		setting, values := settings.All()[at], all.values[key]
		if !setting.Many {
			values = values[max(0, len(values)-1):] // the last one counts, as on a command line
		}
		set = append(set, func(c *run.Config) error {
			if err := setting.Set(&c.Config, values); err != nil {
				return fmt.Errorf("--%s: %w", key, err)
			}
			return nil
		})
	}
	apply := func(c *run.Config) (err error) {
		for _, f := range set {
			err = errors.Join(err, f(c))
		}
		return err
	}
	trial := run.Default()
	return func(c *run.Config) { _ = apply(c) }, apply(&trial) // an invalid value is already an error of the trial
}

// GetAPIServer returns APIServer, and creates it if it is nil.
func (p *ControlPlane) GetAPIServer() *APIServer {
	if p.APIServer == nil {
		p.APIServer = &APIServer{}
	}
	return p.APIServer
}

// publish sets the address of the control plane.
func (p *ControlPlane) publish() (err error) {
	s := p.GetAPIServer()
	if s.URL, err = url.Parse(p.cluster.Config.Host); err != nil {
		return err
	}
	s.SecureServing = SecureServing{ListenAddr: ListenAddr{Address: s.URL.Hostname(), Port: s.URL.Port()}, CA: p.cluster.Config.CAData}
	return nil
}

// User is a user of the control plane.
type User struct {
	Name   string
	Groups []string
}

// AuthenticatedUser is a user with a client certificate.
type AuthenticatedUser struct{ config *rest.Config }

// Config returns a client configuration with the credentials of the user.
func (u *AuthenticatedUser) Config() *rest.Config { return u.config }

// KubeConfig returns the same as a kubeconfig.
func (u AuthenticatedUser) KubeConfig() ([]byte, error) { return kubeconfigOf(u.config) }

// AddUser returns a user with a client certificate; see Environment.AddUser.
func (p *ControlPlane) AddUser(user User, base *rest.Config) (*AuthenticatedUser, error) {
	if p.cluster == nil {
		return nil, errors.New("users can be added when the environment has started its own control plane; it has not")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	request, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: user.Name, Organization: user.Groups}}, key)
	if err != nil {
		return nil, err
	}
	certificate, err := p.cluster.Server.Sign(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}))
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of %s: %w", user.Name, err)
	}
	config := &rest.Config{}
	if base != nil {
		config = rest.CopyConfig(base)
	}
	config.Host, config.CAData = p.cluster.Config.Host, p.cluster.Config.CAData
	config.CertData = certificate
	config.KeyData, err = encodeKey(key)
	return &AuthenticatedUser{config}, err
}

// kubeconfigOf returns a kubeconfig with the address and credentials of a configuration.
func kubeconfigOf(c *rest.Config) ([]byte, error) {
	const name = "envtest"
	authority, err := dataOf(c.CAData, c.CAFile)
	if err != nil {
		return nil, err
	}
	out := clientcmdapi.NewConfig()
	out.Clusters[name] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: authority, InsecureSkipTLSVerify: c.Insecure}
	out.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: c.CertData, ClientKeyData: c.KeyData, ClientCertificate: c.CertFile, ClientKey: c.KeyFile,
		Token: c.BearerToken, TokenFile: c.BearerTokenFile, Username: c.Username, Password: c.Password,
	}
	out.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	out.CurrentContext = name
	return clientcmd.Write(*out)
}

// dataOf returns the data, or the content of the file if there is none.
func dataOf(data []byte, file string) ([]byte, error) {
	if len(data) > 0 || file == "" {
		return data, nil
	}
	return os.ReadFile(file)
}
