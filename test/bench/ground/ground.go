// Package ground is the common base on which node agents are measured: one container runtime and one pod network, the
// same for every agent, run by the measuring program. It can also do without an agent what every agent has to do for a
// Pod, which gives the lower bound of their times.
package ground

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"proa.dev/network/podnetwork"
	"proa.dev/node/cgroup"
	"proa.dev/node/cri"
	"proa.dev/node/runtime"
	"proa.dev/node/volume/mounts"
)

// Image is an image that the runtime has from the start. It waits until it is told to end.
const Image = runtime.PauseImage

// The labels by which agents mark what they make.
const (
	labelUID       = "io.kubernetes.pod.uid"
	labelContainer = "io.kubernetes.container.name"
)

// Ground is a runtime and a network that run.
type Ground struct {
	*cri.Client
	// Socket is where the runtime listens.
	Socket string
	// Groups is the path of a group for all groups of the agent.
	Groups string

	dir     string
	config  runtime.Config
	network podnetwork.Config
	runtime *runtime.Runtime
	cancel  context.CancelFunc
	serving sync.WaitGroup
	log     *slog.Logger
	count   int
	closed  bool
}

// Start starts both, with the programs of a folder. Several can run side by side, with different numbers. Close must be called
// even after an error of what comes later.
func Start(ctx context.Context, bin string, number byte) (_ *Ground, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("containers need root; run this as root, or choose another suite")
	}
	if bin, err = filepath.Abs(bin); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "ground-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	mark := fmt.Sprintf("%d-%d", number, os.Getpid())
	g := &Ground{
		Groups: "/ground" + mark, dir: dir, log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		network: podnetwork.Config{
			DataDir: filepath.Join(dir, "net"), NodeName: "ground", Bridge: "gr" + mark, Table: "ground-" + mark,
			PodCIDRs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 213, 4 * number, 0}), 22)},
		},
	}
	g.network.Log = g.log
	g.config = runtime.Config{
		DataDir: filepath.Join(dir, "rt"), BinDir: bin, CgroupRoot: g.Groups, CNIBinDirs: []string{bin},
		CNIConfDir: filepath.Join(dir, "cni"),
	}
	if err := g.start(ctx); err != nil {
		return nil, errors.Join(err, g.Close(ctx))
	}
	return g, nil
}

func (g *Ground) start(ctx context.Context) (err error) {
	ctx, g.cancel = context.WithCancel(context.WithoutCancel(ctx))
	network, err := podnetwork.New(ctx, g.network)
	if err != nil {
		return err
	}
	g.serving.Go(func() {
		if err := network.Serve(ctx); err != nil && ctx.Err() == nil {
			g.log.Error("the pod network has ended", "err", err)
		}
	})
	if err := network.WriteConf(g.config.CNIConfDir); err != nil {
		return err
	}
	if g.runtime, err = runtime.Start(ctx, g.config, g.log); err != nil {
		return err
	}
	g.Socket = g.runtime.Socket()
	if g.Client, err = cri.Dial(g.Socket); err != nil {
		return err
	}
	return g.groups() // they go with the runtime
}

// groups makes the group of the agent, which must be in every hierarchy before a kubelet starts.
func (g *Ground) groups() error {
	host, err := cgroup.FindHost()
	if err != nil {
		return err
	}
	tree := cgroup.New(cgroup.Config{Host: host, Driver: cgroup.Cgroupfs, Root: g.Groups, Units: cgroup.FindUnits(), Log: g.log})
	if err := tree.Start(nil); err != nil {
		return err
	}
	table, err := mounts.Table()
	if err != nil {
		return err
	}
	for _, m := range table {
		if m.Type == "cgroup" || m.Type == "cgroup2" {
			err = errors.Join(err, os.MkdirAll(filepath.Join(m.Point, g.Groups), 0o755))
		}
	}
	return err
}

// Close ends everything that runs on the ground, and leaves nothing of it. The agent must have ended. A second call does
// nothing.
func (g *Ground) Close(ctx context.Context) error {
	if g.closed {
		return nil
	}
	g.closed = true
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
	defer cancel()
	if g.Client != nil {
		_ = g.Client.Close()
	}
	if g.cancel != nil {
		g.cancel()
	}
	if g.runtime != nil {
		g.runtime.Detach()
	}
	g.serving.Wait()
	err := errors.Join(runtime.Purge(ctx, g.config, g.log), podnetwork.Purge(g.network))
	if err != nil {
		return fmt.Errorf("clean up below %s: %w", g.dir, err)
	}
	return os.RemoveAll(g.dir)
}

// Unmount takes away what is mounted below a folder: agents that end leave the volumes of Pods as they are.
func Unmount(dir string) error {
	table, err := mounts.Table()
	if err != nil {
		return err
	}
	for _, m := range mounts.Under(table, dir) {
		err = errors.Join(err, mounts.Unmount(m.Point))
	}
	return err
}

// Floor makes n Pods of one container at once, as agents do but with nothing around them, and removes them again. It returns
// what it took until the last had started.
func (g *Ground) Floor(ctx context.Context, n int) (time.Duration, error) {
	boxes, errs := make([]string, n), make([]error, n)
	var all sync.WaitGroup
	start := time.Now()
	for i := range n {
		g.count++
		name := fmt.Sprint("floor-", g.count)
		all.Go(func() { boxes[i], errs[i] = g.run(ctx, name) })
	}
	all.Wait()
	took := time.Since(start)
	for _, box := range boxes {
		if box == "" {
			continue
		}
		if _, err := g.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: box}); err != nil {
			errs = append(errs, err)
			continue
		}
		_, err := g.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: box})
		errs = append(errs, err)
	}
	return took, errors.Join(errs...)
}

// run starts a sandbox with one container in it.
func (g *Ground) run(ctx context.Context, name string) (sandbox string, err error) {
	config := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: name, Namespace: "floor", Uid: name}, Hostname: name,
		LogDirectory: filepath.Join(g.dir, "logs", name), DnsConfig: &cri.DNSConfig{Servers: []string{"10.96.0.10"}},
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent:    g.Groups + "/" + name,
			SecurityContext: &cri.LinuxSandboxSecurityContext{Seccomp: &cri.SecurityProfile{ProfileType: cri.ProfileRuntimeDefault}},
		},
	}
	container := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "pause"}, Image: &cri.ImageSpec{Image: Image}, LogPath: "pause.log",
		Linux: &cri.LinuxContainerConfig{Resources: &cri.LinuxContainerResources{MemoryLimitInBytes: 100 << 20, CpuShares: 10,
			OomScoreAdj: 1000}},
	}
	if err := os.MkdirAll(config.LogDirectory, 0o700); err != nil {
		return "", err
	}
	box, err := g.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config})
	if err != nil {
		return "", err
	}
	made, err := g.CreateContainer(ctx,
		&cri.CreateContainerRequest{PodSandboxId: box.PodSandboxId, Config: container, SandboxConfig: config})
	if err != nil {
		return box.PodSandboxId, err
	}
	_, err = g.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: made.ContainerId})
	return box.PodSandboxId, err
}

// Kill kills the process of a Pod's container, as the kernel does when memory is short.
func (g *Ground) Kill(ctx context.Context, uid, container string) error {
	all, err := g.ListContainers(ctx,
		&cri.ListContainersRequest{Filter: &cri.ContainerFilter{LabelSelector: map[string]string{labelUID: uid,
			labelContainer: container}}})
	if err != nil {
		return err
	}
	for _, c := range all.Containers {
		if c.State != cri.ContainerRunning {
			continue
		}
		answer, err := g.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: c.Id, Verbose: true})
		if err != nil {
			return err
		}
		var info struct{ PID int }
		if err := json.Unmarshal([]byte(answer.Info["info"]), &info); err != nil || info.PID <= 1 {
			return fmt.Errorf("the runtime does not tell the process of container %s: %w", c.Id, err)
		}
		return syscall.Kill(info.PID, syscall.SIGKILL)
	}
	return fmt.Errorf("container %s of Pod %s does not run", container, uid)
}

// Runs tells whether the sandbox of a Pod still runs.
func (g *Ground) Runs(ctx context.Context, uid string) (bool, error) {
	all, err := g.ListPodSandbox(ctx,
		&cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{LabelSelector: map[string]string{labelUID: uid}}})
	if err != nil {
		return false, err
	}
	for _, s := range all.Items {
		if s.State == cri.SandboxReady {
			return true, nil
		}
	}
	return false, nil
}
