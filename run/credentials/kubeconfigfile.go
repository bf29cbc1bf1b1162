// Package credentials reads what a process needs to log in to a server: kubeconfigs, of agents and of webhooks, and the
// tokens with which nodes join a cluster.
package credentials

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// Kubeconfig is the part of a kubeconfig that says how to reach a server: a webhook, or the API server of an agent.
type Kubeconfig struct {
	CurrentContext string `json:"current-context"`
	Contexts       []struct {
		Name    string `json:"name"`
		Context struct {
			Cluster string `json:"cluster"`
			User    string `json:"user"`
		} `json:"context"`
	} `json:"contexts"`
	Clusters []struct {
		Name    string  `json:"name"`
		Cluster Cluster `json:"cluster"`
	} `json:"clusters"`
	Users []struct {
		Name string `json:"name"`
		User User   `json:"user"`
	} `json:"users"`
}

// Cluster is a cluster of a kubeconfig: the server, and how to verify its certificate.
type Cluster struct {
	Server     string `json:"server"`
	CAFile     string `json:"certificate-authority"`
	CA         []byte `json:"certificate-authority-data"`
	Insecure   bool   `json:"insecure-skip-tls-verify"`
	ServerName string `json:"tls-server-name"`
	Proxy      string `json:"proxy-url"`
}

// User is a user of a kubeconfig: the credentials for a server.
type User struct {
	CertFile  string `json:"client-certificate"`
	Cert      []byte `json:"client-certificate-data"`
	KeyFile   string `json:"client-key"`
	Key       []byte `json:"client-key-data"`
	Token     string `json:"token"`
	TokenFile string `json:"tokenFile"`
	Username  string `json:"username"`
	Password  string `json:"password"`
	Exec      any    `json:"exec"`
}

// ReadKubeconfig reads the kubeconfig in a file.
func ReadKubeconfig(path string) (*Kubeconfig, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f, err := parseKubeconfigFile(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

func parseKubeconfigFile(text []byte) (*Kubeconfig, error) {
	var f Kubeconfig
	if err := yaml.Unmarshal(text, &f); err != nil {
		return nil, err
	}
	return &f, nil
}

// Current returns the cluster and the user of the current context. The user of a context without one is empty.
func (f *Kubeconfig) Current() (*Cluster, *User, error) {
	if f.CurrentContext == "" {
		return nil, nil, errors.New("there is no current-context; name the context that leads to the server")
	}
	cluster, who, found := "", "", false
	for _, c := range f.Contexts {
		if c.Name == f.CurrentContext {
			cluster, who, found = c.Context.Cluster, c.Context.User, true
		}
	}
	if !found {
		return nil, nil, fmt.Errorf("there is no context %q", f.CurrentContext)
	}
	for _, c := range f.Clusters {
		if c.Name != cluster {
			continue
		}
		for _, u := range f.Users {
			if u.Name == who {
				return &c.Cluster, &u.User, nil
			}
		}
		if who != "" {
			return nil, nil, fmt.Errorf("there is no user %q", who)
		}
		return &c.Cluster, &User{}, nil
	}
	return nil, nil, fmt.Errorf("there is no cluster %q", cluster)
}

// PathFrom returns a path of a file in dir as an absolute path or one relative to the working directory.
func PathFrom(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// ClusterInfoAuthorities returns the certificate authorities in the kubeconfig of the ConfigMap
// kube-public/cluster-info, as PEM. That kubeconfig has clusters, and neither users nor a context.
func ClusterInfoAuthorities(kubeconfig []byte) (out []byte, err error) {
	f, err := parseKubeconfigFile(kubeconfig)
	if err != nil {
		return nil, err
	}
	for _, c := range f.Clusters {
		out = append(append(out, c.Cluster.CA...), '\n')
	}
	return out, nil
}

// DataOrFile returns the data if there is any, and otherwise the content of the file, if one is named.
func DataOrFile(data []byte, file string) ([]byte, error) {
	if len(data) > 0 || file == "" {
		return data, nil
	}
	return os.ReadFile(file)
}
