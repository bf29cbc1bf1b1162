package run

import (
	"context"
	"crypto/tls"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/run/settings"
)

// Config is what Serve needs: the settings of the cluster, what the process runs beside the control plane, and hooks for tests.
type Config struct {
	settings.Config

	// Machine is what the process runs beside the control plane; nil for nothing, and then the only nodes are simulated
	// ones.
	Machine Machine

	// The fields below are hooks for tests. No setting changes them.

	// InMemory keeps the objects in memory only. InProcess opens no socket: only this process reaches the cluster.
	InMemory, InProcess bool
	// MaxConnections is how many connections the listeners of the process may hold together; 0 for what the process has
	// descriptors and the machine has memory for.
	MaxConnections int
	// ServingCertificate replaces the certificate of the API's port; nil for one that the cluster's own authority signs.
	ServingCertificate *tls.Certificate
	// FilterControllers may drop or change controllers; nil runs them all.
	FilterControllers func([]control.Controller) []control.Controller
	// WrapClient may put another client between a controller and the cluster.
	WrapClient func(name string, c client.Client) client.Client
	// StoreHook is called before each operation of the store. If it returns an error, the operation fails with it, as
	// if the store could not be reached.
	StoreHook func(op, key string) error
	// Prepare is called in this order when requests are served and controllers run, before the server counts as ready.
	// An error ends the server.
	Prepare []func(context.Context, *Server) error
}

// Default returns the configuration of a cluster on this machine when no setting is given.
func Default() Config { return Config{Config: settings.Default()} }

// Load returns the configuration that the config file, unless its path is empty, and the flags make of the defaults. Flags
// take precedence over the file. Settings that contradict each other are an error.
func Load(path string, flags settings.Values) (Config, error) {
	values, err := settings.Load(path, flags)
	c := Config{Config: values}
	if err != nil {
		return c, err
	}
	return c, c.Validate()
}
