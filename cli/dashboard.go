package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"proa.dev/cli/command"
	"proa.dev/cli/dashboardproxy"
	"proa.dev/client/apireader"
)

func dashboardCommand() command.Command {
	return command.Command{
		Name: "dashboard", Short: "open the dashboard of a cluster in the browser",
		Long: `
Opens a page in your browser that shows the cluster live: resources of every kind, logs, a shell in containers, what is stuck and why,
and the trace of each object through the twelve hops. Works with any Kubernetes cluster; traces and explanations need proa's API server.

The page is served on a port of 127.0.0.1 for as long as the command runs, and its requests go to the API server with the credentials of
your kubeconfig. A browser is let in with the code that the command prints; the one that the command opens needs none. Ctrl-C ends it.

  proa dashboard
  proa dashboard --context prod --port 8001
  proa dashboard --no-open       only print the address and the code

The API server serves the same page itself, under /dashboard/, and asks for a bearer token there.`,
		Setup: func(fs *flag.FlagSet) func(context.Context, *command.Env, []string) error {
			flags := newReaderFlags(fs)
			port := fs.Int("port", 0, "listen on port `N` of 127.0.0.1; 0 for a free one")
			noOpen := fs.Bool("no-open", false, "do not open the browser")
			return func(ctx context.Context, env *command.Env, args []string) error {
				if len(args) > 0 {
					return errors.New("dashboard takes no arguments; open the object on the page")
				}
				if *port < 0 || *port > 65535 {
					return fmt.Errorf("%d is not a port", *port)
				}
				r, namespace, err := flags.open(ctx, env)
				if err != nil {
					return err
				}
				if _, err := r.Raw(ctx, "/version", "application/json"); err != nil { // rather say it here than on the page
					return err
				}
				cluster, err := newReloadingCluster(ctx, r)
				if err != nil {
					return err
				}
				return serveDashboard(ctx, env, *port, !*noOpen && hasDisplay(), dashboardproxy.Config{
					Cluster: cluster, Server: r.Server(), Namespace: namespace,
				})
			}
		},
	}
}

// serveDashboard runs the proxy of the dashboard until the context ends.
func serveDashboard(ctx context.Context, env *command.Env, port int, open bool, config dashboardproxy.Config) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return err
	}
	defer listener.Close()
	config.Address = listener.Addr().String()
	var proxy *dashboardproxy.Proxy
	config.LoggedIn = func() {
		fmt.Fprintf(env.Out, "A browser has logged in with the code. For another one: %s\n", spaced(proxy.Code()))
	}
	errLocked := errors.New("too many wrong codes were tried; if that was not you, somebody else on this machine wants to use your credentials")
	config.Locked = func() { stop(errLocked) }
	if proxy, err = dashboardproxy.New(config); err != nil {
		return err
	}
	fmt.Fprintf(env.Out, "The dashboard of %s is at %s\nThe page asks for this code: %s\nCtrl-C ends it.\n",
		command.Printable(config.Server), proxy.Address(), spaced(proxy.Code()))
	if open {
		remove, err := openBrowser(ctx, proxy.LoginFile())
		if err != nil {
			fmt.Fprintf(env.Err, "The browser was not opened: %v\n", err)
		}
		defer remove()
	}
	server := &http.Server{
		Handler: proxy, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	err = server.Serve(listener)
	switch {
	case errors.Is(context.Cause(ctx), errLocked):
		return errLocked
	case ctx.Err() != nil:
		return nil // Ctrl-C is how it ends
	}
	return err
}

// spaced returns a code as people read it: in two halves.
func spaced(code string) string {
	if len(code) != 8 {
		return code
	}
	return code[:4] + " " + code[4:]
}

// hasDisplay says that a browser could be shown.
func hasDisplay() bool { return os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != "" }

// openBrowser writes a page to a file that only the user can read, and opens it. The function that it returns removes the file.
func openBrowser(ctx context.Context, page string) (remove func(), err error) {
	nothing := func() {}
	program, err := exec.LookPath("xdg-open")
	if err != nil {
		return nothing, errors.New("xdg-open is not installed")
	}
	folder, err := os.MkdirTemp("", "proa-dashboard-") // mode 0700
	if err != nil {
		return nothing, err
	}
	remove = func() { _ = os.RemoveAll(folder) } // it is a temporary folder
	file := filepath.Join(folder, "open.html")
	if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
		return remove, err
	}
	cmd := exec.CommandContext(ctx, program, file) //nolint:gosec // G204: the desktop's program and our own file
	if err := cmd.Start(); err != nil {
		return remove, err
	}
	go func() { _ = cmd.Wait() }() // xdg-open may last as long as the browser; it ends with the context
	return remove, nil
}

// reloadingCluster sends requests with the credentials of a kubeconfig, and reads them again when they are refused: tokens of credential
// plugins expire while the dashboard is open.
type reloadingCluster struct {
	ctx  context.Context //nolint:containedctx // requests of browsers share the credentials, which outlive each of them
	open func(context.Context) (http.RoundTripper, error)

	mu        sync.Mutex // guards what follows; it is not held while credentials are read
	transport http.RoundTripper
	loaded    time.Time
	reloading chan struct{} // closed when the credentials were read; nil while nobody reads them
}

// newReloadingCluster returns a transport to the server of a reader, and to no other: whoever looks at the page must not be taken to
// another cluster by "kubectl config use-context".
func newReloadingCluster(ctx context.Context, r *apireader.Reader) (*reloadingCluster, error) {
	transport, err := r.Forwarder()
	if err != nil {
		return nil, err
	}
	return &reloadingCluster{ctx: ctx, transport: transport, open: func(ctx context.Context) (http.RoundTripper, error) {
		newer, err := r.Reload(ctx)
		if err != nil {
			return nil, err
		}
		return newer.Forwarder()
	}}, nil
}

const (
	// minReload is the time between two readings of the credentials.
	minReload = 10 * time.Second
	// maxReload is the time that a reading may last: a credential plugin may wait for its user.
	maxReload = 2 * time.Minute
	// maxWait is the time that a refused request waits for new credentials.
	maxWait = 20 * time.Second
)

// RoundTrip sends a request. One without a body is sent once more when new credentials were read.
func (c *reloadingCluster) RoundTrip(req *http.Request) (*http.Response, error) {
	c.mu.Lock()
	transport := c.transport
	c.mu.Unlock()
	resp, err := transport.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		return resp, err
	}
	newer := c.reload(req.Context(), transport)
	if newer == nil || (req.Body != nil && req.Body != http.NoBody) {
		return resp, nil
	}
	_ = resp.Body.Close() // another answer takes its place
	return newer.RoundTrip(req)
}

// reload returns a transport with credentials that were read after those of the given one, or nil. Requests that were refused at the same
// time wait for the same reading; those that are not refused do not come here.
func (c *reloadingCluster) reload(ctx context.Context, refused http.RoundTripper) http.RoundTripper {
	c.mu.Lock()
	if c.transport != refused {
		defer c.mu.Unlock()
		return c.transport
	}
	done := c.reloading
	if done == nil {
		if time.Since(c.loaded) < minReload {
			c.mu.Unlock()
			return nil
		}
		done = make(chan struct{})
		c.reloading = done
		go c.replace(refused, done)
	}
	c.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	select {
	case <-done:
	case <-ctx.Done():
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.transport == refused {
		return nil
	}
	return c.transport
}

// replace reads the credentials, puts a transport with them in the place of the old one and closes done.
func (c *reloadingCluster) replace(old http.RoundTripper, done chan struct{}) {
	ctx, cancel := context.WithTimeout(c.ctx, maxReload)
	defer cancel()
	newer, err := c.open(ctx)

	c.mu.Lock()
	c.reloading, c.loaded = nil, time.Now()
	if err == nil {
		c.transport = newer
	}
	c.mu.Unlock()
	if idle, ok := old.(interface{ CloseIdleConnections() }); ok && err == nil {
		idle.CloseIdleConnections()
	}
	close(done)
}
