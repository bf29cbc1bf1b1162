package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// kubeconfigFile is the part of a kubeconfig that says how to reach a server: a webhook, or the API server of an agent.
type kubeconfigFile struct {
	Current  string `json:"current-context"`
	Contexts []struct {
		Name    string `json:"name"`
		Context struct {
			Cluster string `json:"cluster"`
			User    string `json:"user"`
		} `json:"context"`
	} `json:"contexts"`
	Clusters []struct {
		Name    string            `json:"name"`
		Cluster kubeconfigCluster `json:"cluster"`
	} `json:"clusters"`
	Users []struct {
		Name string         `json:"name"`
		User kubeconfigUser `json:"user"`
	} `json:"users"`
}

type kubeconfigCluster struct {
	Server     string `json:"server"`
	CAFile     string `json:"certificate-authority"`
	CA         []byte `json:"certificate-authority-data"`
	Insecure   bool   `json:"insecure-skip-tls-verify"`
	ServerName string `json:"tls-server-name"`
	Proxy      string `json:"proxy-url"`
}

type kubeconfigUser struct {
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

// readKubeconfig reads a kubeconfig.
func readKubeconfig(path string) (*kubeconfigFile, error) {
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

func parseKubeconfigFile(text []byte) (*kubeconfigFile, error) {
	var f kubeconfigFile
	if err := yaml.Unmarshal(text, &f); err != nil {
		return nil, err
	}
	return &f, nil
}

// current returns the cluster and the user of the current context. A context without a user has an empty one.
func (f *kubeconfigFile) current() (*kubeconfigCluster, *kubeconfigUser, error) {
	if f.Current == "" {
		return nil, nil, errors.New("there is no current-context; name the context that leads to the server")
	}
	cluster, who, found := "", "", false
	for _, c := range f.Contexts {
		if c.Name == f.Current {
			cluster, who, found = c.Context.Cluster, c.Context.User, true
		}
	}
	if !found {
		return nil, nil, fmt.Errorf("there is no context %q", f.Current)
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
		return &c.Cluster, &kubeconfigUser{}, nil
	}
	return nil, nil, fmt.Errorf("there is no cluster %q", cluster)
}

// beside is a path as a file in a folder means it.
func beside(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// ClusterInfoAuthorities returns the certificates of authorities in the kubeconfig of a ConfigMap kube-public/cluster-info, as PEM. Such a
// kubeconfig has clusters, and neither users nor a context.
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
