package pki

import (
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// Kubeconfig is what a client needs to reach the cluster. Either Cert and Key or Token identify it.
type Kubeconfig struct {
	Server string // https://host:port
	CA     []byte // PEM bundle
	Cert   []byte // PEM client certificate
	Key    []byte // PEM client key
	Token  string
	// Cluster names the cluster, User the user and Context the context. Empty ones follow from
	// Cluster, which itself defaults to "proa".
	Cluster, User, Context string
	// Namespace of the context; empty means default.
	Namespace string
}

// The published file format (kind Config of v1), as far as it is written here.
type (
	configFile struct {
		APIVersion     string         `json:"apiVersion"`
		Kind           string         `json:"kind"`
		Clusters       []namedCluster `json:"clusters"`
		Contexts       []namedContext `json:"contexts"`
		CurrentContext string         `json:"current-context"`
		Users          []namedUser    `json:"users"`
	}
	namedCluster struct {
		Name    string `json:"name"`
		Cluster struct {
			CA     []byte `json:"certificate-authority-data,omitempty"`
			Server string `json:"server"`
		} `json:"cluster"`
	}
	namedContext struct {
		Name    string `json:"name"`
		Context struct {
			Cluster   string `json:"cluster"`
			User      string `json:"user"`
			Namespace string `json:"namespace,omitempty"`
		} `json:"context"`
	}
	namedUser struct {
		Name string `json:"name"`
		User struct {
			Cert  []byte `json:"client-certificate-data,omitempty"`
			Key   []byte `json:"client-key-data,omitempty"`
			Token string `json:"token,omitempty"`
		} `json:"user"`
	}
)

// YAML returns the kubeconfig in the format that kubectl reads.
func (k Kubeconfig) YAML() ([]byte, error) {
	if k.Cluster == "" {
		k.Cluster = "proa"
	}
	if k.User == "" {
		k.User = k.Cluster + "-admin"
	}
	if k.Context == "" {
		k.Context = k.Cluster
	}
	c, x, u := namedCluster{Name: k.Cluster}, namedContext{Name: k.Context}, namedUser{Name: k.User}
	c.Cluster.Server, c.Cluster.CA = k.Server, k.CA
	x.Context.Cluster, x.Context.User, x.Context.Namespace = k.Cluster, k.User, k.Namespace
	u.User.Cert, u.User.Key, u.User.Token = k.Cert, k.Key, k.Token
	return yaml.Marshal(configFile{
		APIVersion: "v1", Kind: "Config", CurrentContext: k.Context,
		Clusters: []namedCluster{c}, Contexts: []namedContext{x}, Users: []namedUser{u},
	})
}

// WriteKubeconfig replaces the file at path, readable by its owner only.
func WriteKubeconfig(path string, k Kubeconfig) error {
	data, err := k.YAML()
	if err != nil {
		return fmt.Errorf("encode kubeconfig: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), modeDir); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	if err := writeAtomic(path, data, modeSecret); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// AdminKubeconfig returns the administrator's kubeconfig for the API server at server.
func (p *PKI) AdminKubeconfig(server, cluster string) Kubeconfig {
	admin := p.Admin()
	return Kubeconfig{Server: server, CA: p.CA().PEM, Cert: admin.CertPEM, Key: admin.KeyPEM, Cluster: cluster}
}
