package machine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"proa.dev/node/cri"
	"proa.dev/node/netns"
	"proa.dev/node/runtime"
)

// haltGrace is how long containers have to end when their cluster is stopped, in seconds.
const haltGrace = 10

// HaltNodes ends the containers and the container runtimes of a data folder whose cluster has been stopped, and says how many
// containers there were. What they have written stays, and the next start runs their Pods again.
func HaltNodes(ctx context.Context, dataDir string, log *slog.Logger) (ended int, err error) {
	all, err := existing(dataDir)
	if err != nil {
		return 0, err
	}
	var wg sync.WaitGroup
	counts, errs := make([]int, len(all)), make([]error, len(all)+1)
	for i, f := range all {
		wg.Go(func() { counts[i], errs[i] = haltNode(ctx, f.dir, f.netns(), log) })
	}
	ended, errs[len(all)] = haltNode(ctx, dataDir, "", log)
	wg.Wait()
	for _, n := range counts {
		ended += n
	}
	return ended, errors.Join(errs...)
}

// haltNode does it for one node, whose runtime lives in a network namespace.
func haltNode(ctx context.Context, dataDir, namespace string, log *slog.Logger) (ended int, err error) {
	socket := runtime.Socket(runtimeDir(dataDir))
	if _, err := os.Stat(socket); errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	config, err := keptRuntime(dataDir)
	if err != nil {
		return 0, err
	}
	if netns.Is(namespace) {
		config.NetNS = namespace
	}
	own, err := runtime.Start(ctx, config, log)
	if err != nil {
		return 0, fmt.Errorf("reach the container runtime: %w", err)
	}
	c, err := cri.Dial(own.Socket())
	if err != nil {
		return 0, err
	}
	defer c.Close()
	ended, err = endAll(ctx, c)
	return ended, errors.Join(err, own.Stop(ctx))
}

// endAll ends every container, all at once. Their sandboxes stay, and with them the addresses of Pods: what is left of them is
// one small process each.
func endAll(ctx context.Context, c *cri.Client) (int, error) {
	all, err := c.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return 0, fmt.Errorf("list the containers: %w", err)
	}
	var wg sync.WaitGroup
	ended := 0
	for _, x := range all.Containers {
		if x.State != cri.ContainerRunning {
			continue
		}
		ended++
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, (haltGrace+10)*time.Second)
			defer cancel()
			// One that cannot be ended is the next agent's to see to.
			_, _ = c.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: x.Id, Timeout: haltGrace})
		})
	}
	wg.Wait()
	return ended, nil
}
