package apireader

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// kubeconfig is the part of a kubeconfig file that is needed to read from a cluster.
type kubeconfig struct {
	CurrentContext string `json:"current-context"`
	Contexts       []struct {
		Name    string `json:"name"`
		Context struct {
			Cluster   string `json:"cluster"`
			User      string `json:"user"`
			Namespace string `json:"namespace"`
		} `json:"context"`
	} `json:"contexts"`
	Clusters []struct {
		Name    string  `json:"name"`
		Cluster cluster `json:"cluster"`
	} `json:"clusters"`
	Users []struct {
		Name string `json:"name"`
		User user   `json:"user"`
	} `json:"users"`
}

type cluster struct {
	Server     string `json:"server"`
	CAData     []byte `json:"certificate-authority-data"`
	CAFile     string `json:"certificate-authority"`
	Insecure   bool   `json:"insecure-skip-tls-verify"`
	ServerName string `json:"tls-server-name"`
	ProxyURL   string `json:"proxy-url"`
}

type user struct {
	CertData  []byte `json:"client-certificate-data"`
	CertFile  string `json:"client-certificate"`
	KeyData   []byte `json:"client-key-data"`
	KeyFile   string `json:"client-key"`
	Token     string `json:"token"`
	TokenFile string `json:"tokenFile"`
	Username  string `json:"username"`
	Password  string `json:"password"`
	Exec      *Exec  `json:"exec"`
	// AuthProvider is the former way to name a credential plugin; kubectl does not support it any more either.
	AuthProvider *struct {
		Name string `json:"name"`
	} `json:"auth-provider"`

	// The user to impersonate: the server then decides by that user's rights.
	As       string              `json:"as"`
	AsUID    string              `json:"as-uid"`
	AsGroups []string            `json:"as-groups"`
	AsExtra  map[string][]string `json:"as-user-extra"`
}

// impersonation returns the headers by which the server is asked to take the request for one of another user.
func (u *user) impersonation() http.Header {
	h := http.Header{}
	if u.As != "" {
		h.Set("Impersonate-User", u.As)
	}
	if u.AsUID != "" {
		h.Set("Impersonate-Uid", u.AsUID)
	}
	for _, group := range u.AsGroups {
		h.Add("Impersonate-Group", group)
	}
	for key, values := range u.AsExtra {
		for _, value := range values {
			h.Add("Impersonate-Extra-"+url.PathEscape(key), value)
		}
	}
	return h
}

// Exec is a credential plugin of a kubeconfig: a program that prints an ExecCredential.
type Exec struct {
	APIVersion string   `json:"apiVersion"`
	Command    string   `json:"command"`
	Args       []string `json:"args"`
	Env        []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"env"`
	// InteractiveMode says whether the program needs a terminal: Never, IfAvailable or Always.
	InteractiveMode string `json:"interactiveMode"`
	// ProvideClusterInfo asks for Cluster to be passed on to the program.
	ProvideClusterInfo bool        `json:"provideClusterInfo"`
	Cluster            ExecCluster `json:"-"`
}

// ExecCluster is what a credential plugin is told about the cluster.
type ExecCluster struct {
	Server     string `json:"server"`
	ServerName string `json:"tls-server-name,omitempty"`
	Insecure   bool   `json:"insecure-skip-tls-verify,omitempty"`
	CAData     []byte `json:"certificate-authority-data,omitempty"`
	ProxyURL   string `json:"proxy-url,omitempty"`
}

// Credential is what a credential plugin has printed: a token, or a certificate with its key.
type Credential struct {
	Token     string
	Cert, Key string // PEM
}

// Options say which cluster to read from, and how.
type Options struct {
	// Files are kubeconfig files; the first that names the context, its cluster or its user counts for each of these.
	Files []string
	// Context is the name of a context; empty for the current one.
	Context string
	// RunPlugin runs a credential plugin; nil when none may be run.
	RunPlugin func(ctx context.Context, e *Exec) (Credential, error)

	server string // the address that the cluster must have; empty for any
}

// Reload reads the same files again, for credentials that have changed: with the context that the reader was made for, whichever is the
// current one now. It fails if the context names another server in the meantime.
func (r *Reader) Reload(ctx context.Context) (*Reader, error) { return Load(ctx, r.loaded) }

// Load reads kubeconfig files and returns a reader of the cluster that they name.
func Load(ctx context.Context, o Options) (*Reader, error) {
	merged, err := merge(o.Files)
	if err != nil {
		return nil, err
	}
	name := o.Context
	if name == "" {
		name = merged.CurrentContext
	}
	for _, c := range merged.Contexts {
		if c.Name != name {
			continue
		}
		var at *cluster
		var as *user
		for i := range merged.Clusters {
			if merged.Clusters[i].Name == c.Context.Cluster {
				at = &merged.Clusters[i].Cluster
				break
			}
		}
		for i := range merged.Users {
			if merged.Users[i].Name == c.Context.User {
				as = &merged.Users[i].User
				break
			}
		}
		if at == nil || at.Server == "" {
			return nil, fmt.Errorf("the context %q names the cluster %q, which %s does not have", name, c.Context.Cluster,
				strings.Join(o.Files, ", "))
		}
		if as == nil {
			as = &user{}
		}
		if o.server != "" && at.Server != o.server {
			return nil, fmt.Errorf("the context %q names another server than before", name)
		}
		r, err := newReader(ctx, at, as, o.RunPlugin)
		if err != nil {
			return nil, err
		}
		r.loaded = Options{Files: slices.Clone(o.Files), Context: name, RunPlugin: o.RunPlugin, server: at.Server}
		r.Namespace = c.Context.Namespace
		if r.Namespace == "" {
			r.Namespace = "default"
		}
		return r, nil
	}
	if name == "" {
		return nil, fmt.Errorf("%s names no current context; choose one with --context", strings.Join(o.Files, ", "))
	}
	return nil, fmt.Errorf("%s has no context %q", strings.Join(o.Files, ", "), name)
}

// merge reads files and puts them one behind the other. Files that do not exist are left out, as kubectl does.
func merge(files []string) (out *kubeconfig, err error) {
	out = &kubeconfig{}
	found := false
	for _, name := range files {
		data, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var k kubeconfig
		if err := yaml.Unmarshal(data, &k); err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		k.resolvePaths(filepath.Dir(name))
		found = true
		if out.CurrentContext == "" {
			out.CurrentContext = k.CurrentContext
		}
		out.Contexts = append(out.Contexts, k.Contexts...)
		out.Clusters = append(out.Clusters, k.Clusters...)
		out.Users = append(out.Users, k.Users...)
	}
	if !found {
		return nil, fmt.Errorf("there is no kubeconfig at %s", strings.Join(files, ", "))
	}
	return out, nil
}

// resolvePaths makes the relative paths of a kubeconfig begin at its own folder, also that of a credential plugin that is not a plain
// name.
func (k *kubeconfig) resolvePaths(folder string) {
	resolve := func(path *string) {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(folder, *path)
		}
	}
	for i := range k.Clusters {
		resolve(&k.Clusters[i].Cluster.CAFile)
	}
	for i := range k.Users {
		u := &k.Users[i].User
		resolve(&u.CertFile)
		resolve(&u.KeyFile)
		resolve(&u.TokenFile)
		if u.Exec != nil && strings.ContainsRune(u.Exec.Command, filepath.Separator) {
			resolve(&u.Exec.Command)
		}
	}
}

// newReader makes the HTTP client of a cluster and a user.
func newReader(ctx context.Context, at *cluster, as *user, run func(context.Context, *Exec) (Credential, error)) (*Reader, error) {
	server, err := url.Parse(at.Server)
	if err != nil || server.Host == "" {
		return nil, errors.New("the server of the kubeconfig is not a URL")
	}
	if as.AuthProvider != nil {
		return nil, fmt.Errorf("the user of the kubeconfig logs in with the auth-provider %s; use a credential plugin (exec) in place of it",
			as.AuthProvider.Name)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: at.ServerName,
		InsecureSkipVerify: at.Insecure} //nolint:gosec // G402: the user's kubeconfig says so
	ca, err := content(at.CAData, at.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read the certificate authority: %w", err)
	}
	if len(ca) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, errors.New("the certificate authority of the kubeconfig holds no certificate")
		}
	}
	cert, err := content(as.CertData, as.CertFile)
	if err != nil {
		return nil, fmt.Errorf("read the client certificate: %w", err)
	}
	key, err := content(as.KeyData, as.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("read the key of the client certificate: %w", err)
	}
	token := as.Token
	if token == "" && as.TokenFile != "" {
		data, err := content(nil, as.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("read the token: %w", err)
		}
		token = strings.TrimSpace(string(data))
	}
	if as.Exec != nil {
		if run == nil {
			return nil, fmt.Errorf("the user of the kubeconfig logs in with the program %s, which is not run here", as.Exec.Command)
		}
		as.Exec.Cluster = ExecCluster{Server: at.Server, ServerName: at.ServerName, Insecure: at.Insecure, CAData: ca,
			ProxyURL: at.ProxyURL}
		got, err := run(ctx, as.Exec)
		if err != nil {
			return nil, fmt.Errorf("log in with %s: %w", as.Exec.Command, err)
		}
		if got.Token == "" && (got.Cert == "" || got.Key == "") {
			return nil, fmt.Errorf("log in with %s: it printed neither a token nor a certificate with its key", as.Exec.Command)
		}
		token = got.Token
		if got.Cert != "" {
			cert, key = []byte(got.Cert), []byte(got.Key)
		}
	}
	if len(cert) > 0 {
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("the client certificate of the kubeconfig: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, Proxy: http.ProxyFromEnvironment,
		TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second}
	if at.ProxyURL != "" {
		proxy, err := url.Parse(at.ProxyURL)
		if err != nil {
			return nil, errors.New("the proxy-url of the kubeconfig is not a URL") // err has its password
		}
		transport.Proxy = http.ProxyURL(proxy)
	}
	header := ""
	switch {
	case token != "":
		header = "Bearer " + token
	case as.Username != "":
		header = "Basic " + base64.StdEncoding.EncodeToString([]byte(as.Username+":"+as.Password))
	}
	return &Reader{
		server: strings.TrimRight(at.Server, "/"), printed: strings.TrimRight(server.Redacted(), "/"), authorization: header,
		impersonation: as.impersonation(),
		http: &http.Client{
			Transport: transport, Timeout: timeout,
			// credentials are for this server only
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// content returns data, or what a file has.
func content(data []byte, file string) ([]byte, error) {
	if len(data) > 0 || file == "" {
		return data, nil
	}
	return os.ReadFile(file)
}
