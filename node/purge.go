package node

import (
	"context"
	"log/slog"

	"proa.dev/node/cgroup"
)

// Purge removes what the agent of a folder has left on the machine: groups of Pods, mounts. The runtime must be gone.
func Purge(_ context.Context, dir string, log *slog.Logger) error {
	host, err := cgroup.Find()
	if err != nil {
		return err
	}
	return cgroup.New(cgroup.Config{Host: host, Root: cgroup.RootFor(dir), Units: cgroup.FindUnits(), Log: log}).Purge()
}
