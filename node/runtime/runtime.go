// Package runtime runs a containerd of its own for one node: it writes the configuration, starts it, restarts it when
// it dies, and takes it over from an agent that was killed. It owns everything below one data folder: images, sockets,
// mounts, the log. Containers outlive both containerd and the agent; only Purge ends them. It also imports image
// archives into containerd, for which the CRI has no call.
package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"proa.dev/node/cri"
	"proa.dev/node/subprocess"
)

// Config configures the runtime of a node. DataDir and BinDir must be set; the rest is optional.
type Config struct {
	// DataDir is the folder that the runtime owns.
	DataDir string
	// BinDir has containerd, its shim, runc and pause.
	BinDir string
	// CNIBinDirs and CNIConfDir are where network plugins and their configuration are.
	CNIBinDirs []string
	CNIConfDir string
	// SystemdCgroup makes the cgroups of containers by systemd; otherwise they are made directly.
	SystemdCgroup bool
	// CgroupRoot is the cgroup below which all Pods of the node are. Purge removes it.
	CgroupRoot string
	// Place moves a containerd that was started into a cgroup of its own, so that it does not count for the one of the agent; nil leaves it
	// there.
	Place func(pid int) error `json:"-"`
	// Handlers are the runtime handlers that RuntimeClasses can name, beside runc.
	Handlers []Handler
	// DefaultHandler is the handler of Pods without a RuntimeClass; runc if empty.
	DefaultHandler string
	// RegistryDirs have a folder for each registry, with a hosts.toml that names mirrors and certificates. Earlier ones
	// take precedence. The default is certs.d in DataDir, then that of containerd in /etc.
	RegistryDirs []string
	// MaxDownloads limits how many layers of an image are fetched at once; 3 if zero.
	MaxDownloads int
	// Snapshotter stores the file systems of containers: overlayfs or native. If empty, overlayfs where it works.
	Snapshotter string
	// LogLevel is the log level of containerd: debug, info, warn or error; warn if empty.
	LogLevel string
	// LogBytes limits the size of containerd's log, of which one older part is kept; 10 MiB if zero.
	LogBytes int64
	// NetNS is the file of the network namespace in which containerd runs; that of the agent if empty.
	NetNS string
}

// Handler is a runtime handler that a RuntimeClass can name.
type Handler struct {
	Name string
	// Type is the type of the shim; io.containerd.runc.v2 if empty.
	Type string
	// Binary is the OCI runtime that the shim calls, such as /usr/bin/crun; the runc of BinDir if empty.
	Binary string
	// PodAnnotations are passed to the OCI runtime; they may end with a *.
	PodAnnotations []string
}

// PauseImage is the image of the sandbox container of every Pod. It is made here, and never pulled.
const PauseImage = "proa.dev/pause:1"

// startTimeout is how long containerd may take until it answers: it checks every container of the node first.
const startTimeout = 2 * time.Minute

// Runtime is a running containerd.
type Runtime struct {
	config Config
	layout layout
	log    *slog.Logger
	lock   *os.File
	file   string // the configuration that containerd was started with

	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu      sync.Mutex // guards current
	current *process
}

// Start starts containerd, or takes over the one that an earlier agent left running, and returns when it answers. The
// context ends the supervision; containerd then continues on its own, as it does when the agent is killed.
func Start(ctx context.Context, c Config, log *slog.Logger) (*Runtime, error) {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	if err := c.checkHost(); err != nil {
		return nil, err
	}
	r := &Runtime{config: c, layout: newLayout(c.DataDir), log: log}
	if err := r.layout.make(); err != nil {
		return nil, err
	}
	lock, err := lockFolder(r.layout)
	if err != nil {
		return nil, err
	}
	r.lock = lock
	if err := r.start(ctx); err != nil {
		// A containerd that ran before is not stopped because something is wrong now.
		if p := r.detach(); p != nil && p.Own() {
			err = errors.Join(err, p.terminate(context.WithoutCancel(ctx)))
		}
		r.release()
		return nil, err
	}
	return r, nil
}

func (r *Runtime) start(ctx context.Context) error {
	if err := r.layout.forgetOldBoot(); err != nil {
		return err
	}
	var err error
	if r.file, err = writeConfig(r.config, r.layout, probeHost(r.layout.root)); err != nil {
		return err
	}
	if err := r.takeOver(ctx); err != nil {
		return err
	}
	if r.current == nil {
		if r.current, err = r.spawn(); err != nil {
			return err
		}
		if err := r.waitReady(ctx, r.current); err != nil {
			return err
		}
	}
	r.layout.removeOldConfigs(r.file)
	run, cancel := context.WithCancel(ctx)
	r.cancel = cancel
	r.tasks.Go(func() { r.supervise(run) })
	r.tasks.Go(func() { subprocess.LimitLog(run, r.layout.log, r.config.LogBytes, r.log) })
	return r.ensurePause(ctx)
}

// takeOver makes the containerd of an earlier agent the current one when it answers. There is none afterwards if none ran, or if it has
// ended meanwhile, as one does that was just killed.
func (r *Runtime) takeOver(ctx context.Context) (err error) {
	if r.current, err = r.adopt(ctx); err != nil || r.current == nil {
		return err
	}
	err = r.waitReady(ctx, r.current)
	if _, ended := errors.AsType[*endedError](err); !ended {
		return err
	}
	r.log.Warn("the containerd that was taken over has ended; another one is started", "pid", r.current.Pid, "err", err)
	r.current.Release()
	r.current = nil
	return nil
}

// adopt finds the containerd of an earlier agent. One with another configuration, or of a program that has been
// replaced since, is stopped: its containers keep running, and the next one finds them.
func (r *Runtime) adopt(ctx context.Context) (*process, error) {
	p, err := findContainerd(r.layout)
	if err != nil || p == nil {
		return nil, err
	}
	if p.config == r.file && p.program == filepath.Join(r.config.BinDir, "containerd") {
		r.log.Info("containerd is still running, and is taken over", "pid", p.Pid)
		return p, nil
	}
	r.log.Info("containerd runs with other settings, and is restarted", "pid", p.Pid)
	defer p.Release()
	return nil, p.terminate(ctx)
}

// Socket returns the CRI socket.
func (r *Runtime) Socket() string { return r.layout.socket }

// Pid returns the process id of the running containerd, zero while there is none.
func (r *Runtime) Pid() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current == nil {
		return 0
	}
	return r.current.Pid
}

// Stop stops containerd. Containers keep running, and the next Start finds them.
func (r *Runtime) Stop(ctx context.Context) error {
	p := r.detach()
	defer r.release()
	if p == nil {
		return nil
	}
	return p.terminate(ctx)
}

// Detach ends the supervision and leaves containerd running, for the next agent to take over.
func (r *Runtime) Detach() {
	r.detach()
	r.release()
}

// detach ends the supervision and waits for its end.
func (r *Runtime) detach() *process {
	if r.cancel != nil {
		r.cancel()
	}
	r.tasks.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current
}

// release releases what the runtime holds in this process.
func (r *Runtime) release() {
	if p := r.detach(); p != nil {
		p.Release()
	}
	if r.lock != nil {
		_ = r.lock.Close()
	}
}

// endedError is the error of a containerd that has ended before it answered.
type endedError struct{ log, tail string }

func (e *endedError) Error() string {
	return fmt.Sprintf("containerd ended while it started; %s has its log, which ends\n%s", e.log, e.tail)
}

// waitReady waits until containerd answers, or has ended.
func (r *Runtime) waitReady(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	client, err := cri.Dial(r.layout.socket)
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		if _, err = client.Version(ctx, &cri.VersionRequest{}); err == nil {
			return nil
		}
		select {
		case <-p.Done:
			return &endedError{log: r.layout.log, tail: subprocess.Tail(r.layout.log)}
		case <-ctx.Done():
			return fmt.Errorf("containerd does not answer at %s: %w", r.layout.socket, errors.Join(ctx.Err(), err))
		case <-time.After(5 * time.Millisecond):
		}
	}
}
