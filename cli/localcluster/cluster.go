// Package localcluster gives commands access to a cluster of this machine by its data folder: its files, its server
// process, and its API as the administrator.
package localcluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"sigs.k8s.io/yaml"

	"proa.dev/run/datafolder"
)

// Cluster is the cluster in a data folder.
type Cluster struct {
	Dir string
}

// DataDirFlag declares --data-dir for a command about a cluster that exists; a folder without one is an error.
func DataDirFlag(fs *flag.FlagSet) func() (Cluster, error) {
	which := AnyDataDirFlag(fs)
	return func() (Cluster, error) {
		c, err := which()
		if err == nil {
			err = c.Exists()
		}
		return c, err
	}
}

// AnyDataDirFlag declares --data-dir for a command that checks itself whether the folder has a cluster.
func AnyDataDirFlag(fs *flag.FlagSet) func() (Cluster, error) {
	dir := fs.String("data-dir", datafolder.Default(), "work on the cluster in the folder `DIR`")
	return func() (Cluster, error) { return ClusterAt(*dir) }
}

// ClusterAt returns the cluster of a folder that the user has named.
func ClusterAt(dir string) (Cluster, error) {
	if dir == "" {
		return Cluster{}, errors.New("--data-dir is empty")
	}
	folder, err := datafolder.Resolve(dir)
	return Cluster{Dir: folder}, err
}

// ErrNoRights is part of the error about a data folder of another user.
var ErrNoRights = errors.New("you may not read it")

// Exists returns an error if commands cannot work on the folder: it has neither a cluster nor the node of one, or this
// user may not read it. It creates nothing.
func (c Cluster) Exists() error {
	for _, name := range []string{SettingsFile, "pki", "node", "nodes"} {
		_, err := os.Lstat(c.Path(name))
		switch {
		case err == nil:
			return c.readable()
		case errors.Is(err, os.ErrPermission):
			return c.PermissionError()
		}
	}
	return fmt.Errorf("there is no cluster in %s; \"proa up%s\" makes one", c.Dir, c.CommandFlags())
}

// readable returns an error if this user may not read the folder. The folder of a cluster with a node can be entered by
// others, and not read.
func (c Cluster) readable() error {
	f, err := os.Open(c.Dir)
	if errors.Is(err, os.ErrPermission) {
		return c.PermissionError()
	}
	if err != nil {
		return fmt.Errorf("open the data folder: %w", err)
	}
	return f.Close()
}

// PermissionError returns the error about a folder of another user. It names that user.
func (c Cluster) PermissionError() error {
	who := "the user that started it"
	if info, err := os.Stat(c.Dir); err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			who = "user " + strconv.Itoa(int(st.Uid))
			if u, err := user.LookupId(strconv.Itoa(int(st.Uid))); err == nil {
				who = u.Username
			}
		}
	}
	return fmt.Errorf("the cluster in %s belongs to another user, and %w; run this as %s", c.Dir, ErrNoRights, orRoot(who))
}

// orRoot names the users who may do what a user may.
func orRoot(who string) string {
	if who == "root" {
		return who
	}
	return who + " or as root"
}

// Path returns the path of a file in the data folder.
func (c Cluster) Path(name string) string { return filepath.Join(c.Dir, name) }

// Kubeconfig returns the path of the administrator's kubeconfig.
func (c Cluster) Kubeconfig() string { return c.Path("admin.kubeconfig") }

// LogFile returns the path of the server's log.
func (c Cluster) LogFile() string { return c.Path("server.log") }

// Program returns what the user types to run this program.
func Program() string {
	if found, err := exec.LookPath("proa"); err == nil {
		if self, err := os.Executable(); err == nil && sameFile(found, self) {
			return "proa"
		}
	}
	return os.Args[0]
}

func sameFile(a, b string) bool {
	ia, ea := os.Stat(a)
	ib, eb := os.Stat(b)
	return ea == nil && eb == nil && os.SameFile(ia, ib)
}

// CommandFlags returns the flags that make a command work on this cluster; empty for the default data folder.
func (c Cluster) CommandFlags() string {
	if c.Dir == datafolder.Default() {
		return ""
	}
	return " --data-dir " + c.Dir
}

// ServerPID returns the process that runs the cluster; zero if none does.
func (c Cluster) ServerPID() (int, error) { return datafolder.LockHolder(c.Dir) }

// Access is the administrator's kubeconfig, and the connection to the API server that it describes.
type Access struct {
	Context string `json:"current-context"`
	// Clusters and Users have one entry each, because the server has written them.
	Clusters []struct {
		Name    string `json:"name"`
		Cluster struct {
			Server string `json:"server"`
			CA     []byte `json:"certificate-authority-data"`
		} `json:"cluster"`
	} `json:"clusters"`
	Users []struct {
		Name string `json:"name"`
		User struct {
			Cert []byte `json:"client-certificate-data"`
			Key  []byte `json:"client-key-data"`
		} `json:"user"`
	} `json:"users"`
}

// Access reads the administrator's kubeconfig.
func (c Cluster) Access() (*Access, error) {
	data, err := os.ReadFile(c.Kubeconfig())
	if err != nil {
		return nil, err
	}
	a := new(Access)
	if err := yaml.Unmarshal(data, a); err != nil {
		return nil, fmt.Errorf("read %s: %w", c.Kubeconfig(), err)
	}
	if len(a.Clusters) == 0 || len(a.Users) == 0 {
		return nil, fmt.Errorf("%s names no cluster", c.Kubeconfig())
	}
	return a, nil
}

// Server returns the URL of the API server.
func (a *Access) Server() string { return a.Clusters[0].Cluster.Server }

// client returns an HTTP client with the administrator's certificate.
func (a *Access) client() (*http.Client, error) {
	pair, err := tls.X509KeyPair(a.Users[0].User.Cert, a.Users[0].User.Key)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(a.Clusters[0].Cluster.CA)
	return &http.Client{
		Timeout: 10 * time.Second,
		// the administrator's credentials are for this server only
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
			DisableKeepAlives: true,
		},
	}, nil
}

// maxAnswer bounds the size of an answer of the server.
const maxAnswer = 64 << 20

// Get reads a path of the server.
func (a *Access) Get(ctx context.Context, path string) (code int, body []byte, err error) {
	return a.Send(ctx, http.MethodGet, path, nil)
}

// Send makes a request with a body of JSON, or without a body.
func (a *Access) Send(ctx context.Context, method, path string, body []byte) (code int, answer []byte, err error) {
	h, err := a.client()
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, a.Server()+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := h.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return resp.StatusCode, answer, err
}

// GetOK reads a path of the server, and returns an error for every status code but 200.
func (a *Access) GetOK(ctx context.Context, path string) ([]byte, error) {
	code, body, err := a.Get(ctx, path)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("the server answers %d", code)
	}
	return body, err
}

// Post creates an object, and returns an error for every status code but 201.
func (a *Access) Post(ctx context.Context, path string, body []byte) error {
	code, answer, err := a.Send(ctx, http.MethodPost, path, body)
	if err == nil && code != http.StatusCreated {
		err = fmt.Errorf("the server answers %d: %s", code, answer)
	}
	return err
}
