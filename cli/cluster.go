package cli

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

	proa "proa.dev/run"
)

// cluster is what a data folder tells about the cluster in it.
type cluster struct {
	dir string
}

// dataDirFlag declares --data-dir for a command about a cluster that exists; a folder without one is an error.
func dataDirFlag(fs *flag.FlagSet) func() (cluster, error) {
	which := anyDataDirFlag(fs)
	return func() (cluster, error) {
		c, err := which()
		if err == nil {
			err = c.exists()
		}
		return c, err
	}
}

// anyDataDirFlag declares --data-dir for a command that looks by itself whether there is a cluster in the folder.
func anyDataDirFlag(fs *flag.FlagSet) func() (cluster, error) {
	dir := fs.String("data-dir", proa.DefaultDataDir(), "work on the cluster in the folder `DIR`")
	return func() (cluster, error) { return clusterAt(*dir) }
}

// clusterAt is the cluster of a folder as the user wrote it.
func clusterAt(dir string) (cluster, error) {
	if dir == "" {
		return cluster{}, errors.New("--data-dir is empty")
	}
	folder, err := proa.DataFolder(dir)
	return cluster{folder}, err
}

// errNoRights is about a data folder of another user.
var errNoRights = errors.New("you may not read it")

// exists says why commands cannot work on the folder: there is no cluster in it, nor the node of one, or it is not for this user.
// It makes nothing.
func (c cluster) exists() error {
	for _, name := range []string{settingsFile, "pki", "node", "nodes"} {
		_, err := os.Lstat(c.file(name))
		switch {
		case err == nil:
			return c.readable()
		case errors.Is(err, os.ErrPermission):
			return c.noRights()
		}
	}
	return fmt.Errorf("there is no cluster in %s; \"proa up%s\" makes one", c.dir, c.flags())
}

// readable finds out whether this user may read the folder. With a node others may pass through it, and read nothing.
func (c cluster) readable() error {
	f, err := os.Open(c.dir)
	if errors.Is(err, os.ErrPermission) {
		return c.noRights()
	}
	if err != nil {
		return fmt.Errorf("open the data folder: %w", err)
	}
	return f.Close()
}

func (c cluster) noRights() error {
	who := "the user that started it"
	if info, err := os.Stat(c.dir); err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			who = "user " + strconv.Itoa(int(st.Uid))
			if u, err := user.LookupId(strconv.Itoa(int(st.Uid))); err == nil {
				who = u.Username
			}
		}
	}
	return fmt.Errorf("the cluster in %s belongs to another user, and %w; run this as %s or as root", c.dir, errNoRights, who)
}

// outputFlag declares -o.
func outputFlag(fs *flag.FlagSet) func() (string, error) {
	format := fs.String("o", "", "`FORMAT` of the output: json, or empty for people")
	return func() (string, error) {
		if *format != "" && *format != "json" {
			return "", fmt.Errorf("-o knows json and no other format, but got %q", *format)
		}
		return *format, nil
	}
}

func (c cluster) file(name string) string { return filepath.Join(c.dir, name) }
func (c cluster) kubeconfig() string      { return c.file("admin.kubeconfig") }
func (c cluster) log() string             { return c.file("server.log") }

// program is what to type to run this program.
func program() string {
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

// flags are what a command needs to mean this cluster.
func (c cluster) flags() string {
	if c.dir == proa.DefaultDataDir() {
		return ""
	}
	return " --data-dir " + c.dir
}

// pid is the process that runs the cluster, zero if none does.
func (c cluster) pid() (int, error) { return proa.Holder(c.dir) }

// access is the administrator's kubeconfig, as far as it is needed here.
type access struct {
	Context string `json:"current-context"`
	// Clusters and Users have one entry each: the server wrote them.
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

func (c cluster) access() (*access, error) {
	data, err := os.ReadFile(c.kubeconfig())
	if err != nil {
		return nil, err
	}
	a := new(access)
	if err := yaml.Unmarshal(data, a); err != nil {
		return nil, fmt.Errorf("read %s: %w", c.kubeconfig(), err)
	}
	if len(a.Clusters) == 0 || len(a.Users) == 0 {
		return nil, fmt.Errorf("%s names no cluster", c.kubeconfig())
	}
	return a, nil
}

func (a *access) server() string { return a.Clusters[0].Cluster.Server }

// client speaks to the server as the administrator.
func (a *access) client() (*http.Client, error) {
	pair, err := tls.X509KeyPair(a.Users[0].User.Cert, a.Users[0].User.Key)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(a.Clusters[0].Cluster.CA)
	return &http.Client{
		Timeout:       10 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the administrator's words are for this server
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
			DisableKeepAlives: true,
		},
	}, nil
}

// maxAnswer bounds what is read of an answer of the server.
const maxAnswer = 64 << 20

// get asks the server for a path.
func (a *access) get(ctx context.Context, path string) (code int, body []byte, err error) {
	return a.send(ctx, http.MethodGet, path, nil)
}

// send makes a request with a body of JSON, or without one.
func (a *access) send(ctx context.Context, method, path string, body []byte) (code int, answer []byte, err error) {
	h, err := a.client()
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, a.server()+path, bytes.NewReader(body))
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

// ok asks the server for a path, and takes every answer but yes for an error.
func (a *access) ok(ctx context.Context, path string) ([]byte, error) {
	code, body, err := a.get(ctx, path)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("the server answers %d", code)
	}
	return body, err
}
