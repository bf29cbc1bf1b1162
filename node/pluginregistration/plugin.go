// Package pluginregistration discovers the plugins of a node: CSI drivers, device plugins, DRA drivers. A plugin
// creates a socket in a folder; it is asked there for its type and name, passed to the handler of its type, and told
// whether it was registered. When the socket disappears, the plugin is deregistered.
package pluginregistration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"proa.dev/internal/wait"
)

// The types of plugins.
const (
	Storage = registration.CSIPlugin
	Devices = registration.DevicePlugin
	Claims  = registration.DRAPlugin
)

// The timeout of a plugin, and the back-off after a failed registration.
const (
	callTimeout = 10 * time.Second
	firstRetry  = 500 * time.Millisecond
	lastRetry   = 2 * time.Minute
)

// Info is what a plugin says about itself.
type Info struct {
	Type, Name string
	// Endpoint is the socket at which the plugin serves.
	Endpoint string
	Versions []string
}

// Handler is responsible for the plugins of a type.
type Handler interface {
	// Register registers a plugin, or returns why not. It is called again when a plugin registers again. ctx lives as
	// long as the plugin's socket.
	Register(ctx context.Context, i Info) error
	// Deregister removes a plugin whose socket has disappeared.
	Deregister(ctx context.Context, name string)
}

// Registry watches a folder for plugins.
type Registry struct {
	// Dir is the folder, such as <data>/plugins_registry. It is created if it does not exist.
	Dir string
	// Handlers are the handlers of each type.
	Handlers map[string]Handler
	Log      *slog.Logger
}

// Run keeps plugins registered until ctx ends.
func (r *Registry) Run(ctx context.Context) error {
	if err := os.MkdirAll(r.Dir, 0o750); err != nil {
		return fmt.Errorf("make the folder of plugins: %w", err)
	}
	changes, stop, err := watch(r.Dir)
	if err != nil {
		return err
	}
	defer stop()
	known := map[string]*socket{}
	var all sync.WaitGroup
	defer all.Wait()
	defer func() {
		for _, k := range known {
			k.stop()
		}
	}()
	for {
		r.reconcile(ctx, known, &all)
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-changes:
			if !ok {
				return errors.New("the folder of plugins cannot be watched any more")
			}
		}
	}
}

// socket is an existing socket.
type socket struct {
	id   string // distinguishes it from another one of the same name
	stop context.CancelFunc
}

// reconcile starts the registration of new sockets and ends that of sockets that have disappeared.
func (r *Registry) reconcile(ctx context.Context, all map[string]*socket, running *sync.WaitGroup) {
	now := r.sockets()
	for name, k := range all {
		if now[name] != k.id {
			k.stop()
			delete(all, name)
		}
	}
	for name, id := range now {
		if all[name] != nil {
			continue
		}
		own, stop := context.WithCancel(ctx)
		all[name] = &socket{id, stop}
		running.Go(func() { r.serve(own, ctx, filepath.Join(r.Dir, name)) })
	}
}

// sockets returns the sockets in the folder, each with its id.
func (r *Registry) sockets() map[string]string {
	out := map[string]string{}
	entries, err := os.ReadDir(r.Dir)
	if err != nil {
		r.Log.Warn("the folder of plugins cannot be read", "dir", r.Dir, "err", err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || info.Mode().Type() != fs.ModeSocket || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		out[e.Name()] = fmt.Sprint(info.ModTime().UnixNano(), inode(info))
	}
	return out
}

// serve registers the plugin behind a socket, and deregisters it when the socket disappears. all ends with the
// registry, which is no reason to deregister anything.
func (r *Registry) serve(ctx, all context.Context, socket string) {
	var info Info
	retry := wait.Backoff{First: firstRetry, Max: lastRetry}
	for {
		var err error
		if info, err = r.register(ctx, socket); err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		r.Log.WarnContext(ctx, "a plugin was not registered", "socket", socket, "err", err)
		if retry.Sleep(ctx) != nil {
			return
		}
	}
	r.Log.InfoContext(ctx, "a plugin was registered", "type", info.Type, "name", info.Name)
	<-ctx.Done()
	if all.Err() == nil {
		r.Handlers[info.Type].Deregister(all, info.Name)
		r.Log.InfoContext(all, "a plugin was deregistered", "type", info.Type, "name", info.Name)
	}
}

// register asks a plugin for its type and name, passes it to its handler, and tells it the result.
func (r *Registry) register(ctx context.Context, socket string) (Info, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return Info{}, err
	}
	defer func() { _ = conn.Close() }()
	c := registration.NewRegistrationClient(conn)
	limit, stop := context.WithTimeout(ctx, callTimeout)
	got, err := c.GetInfo(limit, &registration.InfoRequest{})
	stop()
	if err != nil {
		return Info{}, fmt.Errorf("ask the plugin who it is: %w", err)
	}
	i := Info{Type: got.Type, Name: got.Name, Endpoint: got.Endpoint, Versions: got.SupportedVersions}
	if i.Endpoint == "" {
		i.Endpoint = socket
	}
	taken := r.dispatch(ctx, i)
	status := &registration.RegistrationStatus{PluginRegistered: taken == nil}
	if taken != nil {
		status.Error = taken.Error()
	}
	limit, stop = context.WithTimeout(ctx, callTimeout)
	defer stop()
	if _, err := c.NotifyRegistrationStatus(limit, status); err != nil && taken == nil {
		r.Log.WarnContext(ctx, "a plugin cannot be told that it is registered", "name", i.Name, "err", err)
	}
	return i, taken
}

func (r *Registry) dispatch(ctx context.Context, i Info) error {
	h := r.Handlers[i.Type]
	switch {
	case h == nil:
		return fmt.Errorf("no handler registered for plugin type: %s at socket %s", i.Type, i.Endpoint)
	case i.Name == "" || !filepath.IsAbs(i.Endpoint):
		return fmt.Errorf("a plugin needs a name and an endpoint, got %q and %q", i.Name, i.Endpoint)
	}
	return h.Register(ctx, i)
}
