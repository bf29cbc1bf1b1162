package node

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"

	"proa.dev/node/cgroup"
	"proa.dev/node/shutdown"
	"proa.dev/node/volume/mounts"
)

// Purge removes what the agent of a folder has left on the machine: groups of Pods, mounts. The runtime must be gone.
func Purge(_ context.Context, dir string, log *slog.Logger) error {
	host, err := cgroup.Find()
	if err != nil {
		return err
	}
	errs := []error{cgroup.New(cgroup.Config{Host: host, Root: cgroup.RootFor(dir), Units: cgroup.FindUnits(), Log: log}).Purge()}
	errs = append(errs, shutdown.Undo())
	table, err := mounts.Table()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	for _, m := range mounts.Under(table, dir) {
		errs = append(errs, mounts.Unmount(m.Point))
	}
	return errors.Join(errs...)
}
