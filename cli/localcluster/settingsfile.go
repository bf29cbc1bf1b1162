package localcluster

import (
	"errors"
	"fmt"
	"os"

	proa "proa.dev/run"
	"proa.dev/run/settings"
)

// SettingsFile has the settings with which "proa up" last started the cluster.
const SettingsFile = "server.yaml"

// Settings returns the settings with which "proa up" last started the cluster; nil if it has not.
func (c Cluster) Settings() (settings.Values, error) {
	data, err := os.ReadFile(c.Path(SettingsFile))
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
		return nil, fmt.Errorf("%s: %w", c.Path(SettingsFile), err)
	}
	return values, nil
}

// Config returns the configuration with which "proa up" last started the cluster. found is false if it has not.
func (c Cluster) Config() (conf proa.Config, found bool, err error) {
	values, err := c.Settings()
	if err != nil || values == nil {
		return conf, false, err
	}
	if conf, err = proa.Load("", values); err != nil {
		return conf, false, fmt.Errorf("%s: %w", c.Path(SettingsFile), err)
	}
	return conf, true, nil
}
