package node

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"

	"proa.dev/node/cgroup"
	"proa.dev/node/volume/mounts"
)

// Purge removes the cgroups and mounts that the agent of a data folder has left on the machine. The container runtime
// must have ended.
func Purge(_ context.Context, dir string, log *slog.Logger) error {
	host, err := cgroup.FindHost()
	if err != nil {
		return err
	}
	errs := []error{cgroup.New(cgroup.Config{Host: host, Root: cgroup.RootFor(dir), Units: cgroup.FindUnits(), Log: log}).Purge()}
	return errors.Join(append(errs, Unmount(dir))...)
}

// Unmount unmounts what the agent of a data folder has mounted below it, such as the volumes of Pods. The containers must
// have ended.
func Unmount(dir string) error {
	table, err := mounts.Table()
	if err != nil {
		return err
	}
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved
	}
	var errs []error
	for _, m := range mounts.Under(table, dir) {
		if m.Point == dir && m.Root == "/" {
			continue // a disk of the administrator, not the bind mount that the agent makes of its folder
		}
		errs = append(errs, mounts.Unmount(m.Point))
	}
	return errors.Join(errs...)
}
