package localcluster

import (
	"errors"
	"fmt"
	"os"

	proa "proa.dev/run"
	"proa.dev/run/machine/nodefolder"
	"proa.dev/run/settings"
)

// SettingsFile has the settings with which "proa up" last started the cluster.
const SettingsFile = "server.yaml"

// Settings returns the settings with which "proa up" last started the cluster; nil if it has not.
func (c Cluster) Settings() (settings.Values, error) { return c.settingsIn(c.Path(SettingsFile)) }

// settingsIn returns the settings in a file of the data folder; nil if there is no such file.
func (c Cluster) settingsIn(path string) (settings.Values, error) {
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil
	case errors.Is(err, os.ErrPermission):
		return nil, c.PermissionError()
	case err != nil:
		return nil, err
	}
	values, err := settings.ParseFile(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return values, nil
}

// Config returns the configuration of the server that last ran a node in this folder or, if none has, that with which "proa up" last
// started the cluster. found is false if there is neither.
func (c Cluster) Config() (conf proa.Config, found bool, err error) {
	if conf, found, err = c.ServerConfig(); err != nil || found {
		return conf, found, err
	}
	return c.configIn(c.Path(SettingsFile))
}

// ServerConfig returns the configuration of the server that last ran a node in this folder. found is false if none has.
func (c Cluster) ServerConfig() (conf proa.Config, found bool, err error) {
	return c.configIn(nodefolder.ServerSettingsFile(c.Dir))
}

// configIn returns the configuration of a file of settings in the data folder.
func (c Cluster) configIn(path string) (conf proa.Config, found bool, err error) {
	values, err := c.settingsIn(path)
	if err != nil || values == nil {
		return conf, false, err
	}
	if conf, err = proa.Load("", values); err != nil {
		return conf, false, fmt.Errorf("%s: %w", path, err)
	}
	return conf, true, nil
}
