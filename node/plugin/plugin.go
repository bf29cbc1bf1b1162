// Package plugin lets plugins of a node register themselves: storage drivers, and whatever else speaks the plugin registration
// API. A plugin makes a socket in a folder; it is asked there who it is, handed to whoever is responsible for its type, and
// told whether it was taken. When the socket goes, so does the plugin.
package plugin

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
)

// The types of plugins.
const (
	Storage = registration.CSIPlugin
	Devices = registration.DevicePlugin
	Claims  = registration.DRAPlugin
)

// How long a plugin has to answer, and how long to wait before it is asked again, from the first to the last.
const (
	answer     = 10 * time.Second
	firstRetry = 500 * time.Millisecond
	lastRetry  = 2 * time.Minute
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
	// Register takes a plugin, or says why not. It is called again when a plugin registers again. ctx lives as long as the plugin's
	// socket is there.
	Register(ctx context.Context, i Info) error
	// Deregister forgets a plugin whose socket is gone.
	Deregister(ctx context.Context, name string)
}

// Registry watches a folder for plugins.
type Registry struct {
	// Dir is the folder, such as <data>/plugins_registry. It is made if it is not there.
	Dir string
	// Handlers are those for each type.
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
	known := map[string]*known{}
	var all sync.WaitGroup
	defer all.Wait()
	for {
		r.look(ctx, known, &all)
		select {
		case <-ctx.Done():
			for _, k := range known {
				k.stop()
			}
			return nil
		case _, ok := <-changes:
			if !ok {
				return errors.New("the folder of plugins cannot be watched any more")
			}
		}
	}
}

// known is a socket that is there.
type known struct {
	id   string // tells it from another one of the same name
	stop context.CancelFunc
}

// look begins with sockets that are new and ends with those that are gone.
func (r *Registry) look(ctx context.Context, all map[string]*known, running *sync.WaitGroup) {
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
		all[name] = &known{id, stop}
		running.Go(func() { r.serve(own, ctx, filepath.Join(r.Dir, name)) })
	}
}

// sockets are those in the folder, each with what tells it from the one before.
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

// serve registers the plugin behind a socket, and deregisters it when the socket goes. all ends with the registry, which is no
// reason to deregister anything.
func (r *Registry) serve(ctx, all context.Context, socket string) {
	var info Info
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		var err error
		if info, err = r.register(ctx, socket); err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		r.Log.WarnContext(ctx, "a plugin was not registered", "socket", socket, "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
	r.Log.InfoContext(ctx, "a plugin was registered", "type", info.Type, "name", info.Name)
	<-ctx.Done()
	if all.Err() == nil {
		r.Handlers[info.Type].Deregister(all, info.Name)
		r.Log.InfoContext(all, "a plugin has gone", "type", info.Type, "name", info.Name)
	}
}

// register asks a plugin who it is, and tells it what came of it.
func (r *Registry) register(ctx context.Context, socket string) (Info, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return Info{}, err
	}
	defer func() { _ = conn.Close() }()
	c := registration.NewRegistrationClient(conn)
	limit, stop := context.WithTimeout(ctx, answer)
	got, err := c.GetInfo(limit, &registration.InfoRequest{})
	stop()
	if err != nil {
		return Info{}, fmt.Errorf("ask the plugin who it is: %w", err)
	}
	i := Info{Type: got.Type, Name: got.Name, Endpoint: got.Endpoint, Versions: got.SupportedVersions}
	if i.Endpoint == "" {
		i.Endpoint = socket
	}
	taken := r.take(ctx, i)
	status := &registration.RegistrationStatus{PluginRegistered: taken == nil}
	if taken != nil {
		status.Error = taken.Error()
	}
	limit, stop = context.WithTimeout(ctx, answer)
	defer stop()
	if _, err := c.NotifyRegistrationStatus(limit, status); err != nil && taken == nil {
		r.Log.WarnContext(ctx, "a plugin does not want to hear that it is registered", "name", i.Name, "err", err)
	}
	return i, taken
}

func (r *Registry) take(ctx context.Context, i Info) error {
	h := r.Handlers[i.Type]
	switch {
	case h == nil:
		return fmt.Errorf("no handler registered for plugin type: %s at socket %s", i.Type, i.Endpoint)
	case i.Name == "" || !filepath.IsAbs(i.Endpoint):
		return fmt.Errorf("a plugin needs a name and an endpoint, got %q and %q", i.Name, i.Endpoint)
	}
	return h.Register(ctx, i)
}
