// Package teardown ends and removes what the nodes of a cluster have made on this machine: Pods, agents, containers,
// container runtimes, network interfaces, rules, mounts and folders.
package teardown

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"proa.dev/network/nodebridge"
	netpod "proa.dev/network/podnetwork"
	"proa.dev/node"
	"proa.dev/node/container"
	"proa.dev/node/cri"
	"proa.dev/node/interruption"
	"proa.dev/node/netns"
	"proa.dev/node/pod"
	"proa.dev/node/runtime"
	"proa.dev/run/machine/nodefolder"
)

// HaltNodes ends the containers and the container runtimes of a data folder whose cluster has been stopped, and returns
// how many containers there were. No agent is left that could run hooks or keep an order: each container has the grace
// period of its Pod, or limit if that is shorter. What still runs on the nodes in stopped, see Stopping, is killed: its time
// is over. Before, it records that the containers were interrupted; what they have written stays, and the next start
// runs their Pods again, in new sandboxes. No process and no mount is left, and no route to the Pods and nodes: another
// cluster with the same networks would not work beside it.
func HaltNodes(ctx context.Context, dataDir string, limit time.Duration, stopped map[string]bool, log *slog.Logger) (ended int, err error) {
	all, err := nodefolder.Existing(dataDir)
	if err != nil {
		return 0, err
	}
	limitOf := func(dir string) time.Duration {
		if stopped[dir] {
			return 0
		}
		return limit
	}
	var wg sync.WaitGroup
	counts, errs := make([]int, len(all)), make([]error, len(all)+1)
	for i, f := range all {
		wg.Go(func() {
			if counts[i], errs[i] = haltNode(ctx, f.Dir, f.NetNS(), limitOf(f.Dir), log); errs[i] == nil {
				errs[i] = errors.Join(nodebridge.Unplug(f.NetNS()), netns.Remove(f.NetNS()))
			}
		})
	}
	hasRuntime := hasRuntimeSocket(dataDir)
	ended, errs[len(all)] = haltNode(ctx, dataDir, "", limitOf(dataDir), log)
	wg.Wait()
	for _, n := range counts {
		ended += n
	}
	if err := errors.Join(errs...); err != nil {
		return ended, err // containers that still run need the network
	}
	if hasRuntime {
		err = removeRoutes(dataDir)
	}
	return ended, errors.Join(err, disableNetwork(dataDir, !hasRuntime))
}

// disableNetwork sets the interfaces of a data folder's nodes down. If keepUsed is set, the bridge of Pods that are still connected
// stays: containers of a runtime that is not part of proa may go on.
func disableNetwork(dataDir string, keepUsed bool) error {
	err := nodebridge.Disable(nodefolder.NodeBridge(dataDir))
	pods := nodefolder.PodNetwork(dataDir, "", nil)
	if !pods.HasRun() {
		return err // there was no Pod network, and a bridge of its name is that of another cluster
	}
	pods.Tunnel = nodefolder.Tunnel(dataDir)
	return errors.Join(err, netpod.Disable(pods, keepUsed))
}

func hasRuntimeSocket(dataDir string) bool {
	_, err := os.Stat(runtime.Socket(nodefolder.RuntimeDir(dataDir)))
	return !errors.Is(err, os.ErrNotExist)
}

// releaseTimeout is how long a killed process may take to release the runtime.
const releaseTimeout = 10 * time.Second

// haltNode ends the containers and the runtime of one node, whose runtime is in a network namespace.
func haltNode(ctx context.Context, dataDir, namespace string, limit time.Duration, log *slog.Logger) (ended int, err error) {
	if !hasRuntimeSocket(dataDir) {
		return 0, nil
	}
	config, err := nodefolder.StoredRuntimeConfig(dataDir)
	if err != nil {
		return 0, err
	}
	if netns.Is(namespace) {
		config.NetNS = namespace
	}
	own, err := runtime.Start(ctx, config, log)
	for begin := time.Now(); errors.Is(err, runtime.ErrInUse) && time.Since(begin) < releaseTimeout &&
		ctx.Err() == nil; own, err = runtime.Start(ctx, config, log) {
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		return 0, fmt.Errorf("reach the container runtime: %w", err)
	}
	c, err := cri.Dial(own.Socket())
	if err != nil {
		return 0, err
	}
	defer c.Close()
	ended, err = endAll(ctx, c, interruption.RecordsIn(nodefolder.AgentDir(dataDir)), limit)
	if err = errors.Join(err, own.Stop(ctx)); err != nil {
		return ended, err // what still runs needs its sandbox and its volumes
	}
	return ended, errors.Join(runtime.EndSandboxes(ctx, config), node.Unmount(nodefolder.AgentDir(dataDir)))
}

// endAll ends every container, a few at a time of each Pod.
func endAll(ctx context.Context, c *cri.Client, records interruption.Records, limit time.Duration) (int, error) {
	all, err := c.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return 0, fmt.Errorf("list the containers: %w", err)
	}
	pods, count := map[types.UID][]*cri.Container{}, 0
	for _, x := range all.Containers {
		if x.State != cri.ContainerRunning {
			continue
		}
		count++
		uid := types.UID(x.Labels[pod.LabelUID])
		pods[uid] = append(pods[uid], x)
	}
	for uid, runs := range pods {
		var ids []string
		for _, x := range runs {
			ids = append(ids, x.Id)
		}
		if _, err := records.Add(uid, ids...); err != nil {
			return 0, fmt.Errorf("the containers go on: %w", err)
		}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for _, runs := range pods {
		slots := cri.NewStopSlots(len(runs), sharesPIDs(ctx, c, runs[0].PodSandboxId))
		for _, x := range runs {
			wg.Go(func() {
				if err := endOne(ctx, c, x, slots, limit); err != nil {
					mu.Lock()
					defer mu.Unlock()
					errs = append(errs, fmt.Errorf("stop the container %s of Pod %s/%s: %w", x.Labels[pod.LabelContainer],
						x.Labels[pod.LabelNamespace], x.Labels[pod.LabelName], err))
				}
			})
		}
	}
	wg.Wait()
	return count - len(errs), errors.Join(errs...)
}

// sharesPIDs reports whether the containers of a sandbox share a PID namespace, or may do so.
func sharesPIDs(ctx context.Context, c *cri.Client, sandbox string) bool {
	answer, err := c.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: sandbox})
	return err != nil || answer.GetStatus().GetLinux().GetNamespaces().GetOptions().GetPid() != cri.NamespaceContainer
}

// endOne ends a container within the grace period of its annotation, or limit if that is shorter.
func endOne(ctx context.Context, c *cri.Client, x *cri.Container, slots cri.StopSlots, limit time.Duration) error {
	within := min(container.GracePeriod(x.Annotations), limit)
	ctx, cancel := context.WithTimeout(ctx, within+time.Minute)
	defer cancel()
	_, err := c.Stop(ctx, x.Id, within, slots)
	return err
}
