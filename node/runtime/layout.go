package runtime

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"proa.dev/node/volume/mounts"
)

// layout is where the files of one runtime are.
type layout struct {
	dir    string // all of it
	root   string // what survives a boot: images, file systems of containers
	state  string // what does not
	run    string // sockets; below dir, unless that is too long a path for them
	socket string
	shims  string // sockets of the shims
	log    string
	lock   string
	boot   string // in which boot the state was made
	// network has the configuration of network plugins, if the agent gives no other folder.
	network string
}

const (
	// socketLimit is what the kernel takes as the path of a socket.
	socketLimit = 107
	// shimLimit is what containerd takes as the folder of the shims' sockets.
	shimLimit = 42
	// shortRun is where sockets go that have too long a path in the data folder.
	shortRun = "/run/proa"
)

func newLayout(dir string) layout {
	dir = filepath.Clean(dir)
	run := dir
	if len(filepath.Join(run, "s")) > shimLimit || len(filepath.Join(run, "containerd.sock.ttrpc")) > socketLimit {
		sum := sha256.Sum256([]byte(dir))
		run = filepath.Join(shortRun, hex.EncodeToString(sum[:6]))
	}
	return layout{
		dir: dir, root: filepath.Join(dir, "root"), state: filepath.Join(dir, "state"),
		run: run, socket: filepath.Join(run, "containerd.sock"), shims: filepath.Join(run, "s"),
		log: filepath.Join(dir, "containerd.log"), lock: filepath.Join(dir, "lock"), boot: filepath.Join(dir, "boot"), network: filepath.Join(dir, "net.d"),
	}
}

// config is the file of a configuration. The name tells the content, so that the arguments of a process tell with which
// configuration it runs.
func (l layout) config(text string) string {
	sum := sha256.Sum256([]byte(text))
	return filepath.Join(l.dir, "config-"+hex.EncodeToString(sum[:6])+".toml")
}

// isConfig tells whether a file is a configuration of this runtime.
func (l layout) isConfig(file string) bool {
	name := filepath.Base(file)
	return filepath.Dir(file) == l.dir && strings.HasPrefix(name, "config-") && strings.HasSuffix(name, ".toml")
}

// make creates the folders. Processes of user namespaces walk through them, so they may be passed, but not listed.
func (l layout) make() error {
	for _, dir := range []string{l.dir, l.root, l.state, l.run} {
		if err := os.MkdirAll(dir, 0o711); err != nil { //nolint:gosec // G301: see above
			return fmt.Errorf("make the folders of the runtime: %w", err)
		}
	}
	return os.MkdirAll(l.shims, 0o700)
}

// removeOldConfigs removes all configurations but one.
func (l layout) removeOldConfigs(keep string) {
	files, _ := filepath.Glob(filepath.Join(l.dir, "config-*.toml"))
	for _, f := range files {
		if f != keep {
			_ = os.Remove(f)
		}
	}
}

// ErrInUse says that the folder of a runtime is held. A process that was killed holds it until the kernel is done with it.
var ErrInUse = errors.New("another process runs the runtime")

// lockFolder makes this process the only one that runs containerd in the folder, until it ends in whatever way.
func lockFolder(l layout) (*os.File, error) {
	f, err := os.OpenFile(l.lock, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the runtime's folder: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("%w in %s; stop it first, or use another data folder", ErrInUse, l.dir)
	}
	return nil, fmt.Errorf("lock the runtime's folder: %w", err)
}

// forgetOldBoot removes the state of an earlier boot: the processes, mounts and namespaces that it speaks of are gone.
// Where state is kept in memory, the kernel does this.
func (l layout) forgetOldBoot() error {
	now, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return fmt.Errorf("read the id of this boot: %w", err)
	}
	then, err := os.ReadFile(l.boot)
	switch {
	case err == nil && string(then) == string(now):
		return nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	}
	for _, dir := range []string{l.state, l.shims} {
		if err := emptyFolder(dir); err != nil {
			return fmt.Errorf("remove the state of an earlier boot: %w", err)
		}
	}
	return os.WriteFile(l.boot, now, 0o600)
}

// emptyFolder removes what is in a folder, but nothing that is mounted there.
func emptyFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if err := mounts.Remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// Socket is the path of the socket that the runtime of a folder speaks the CRI at.
func Socket(dataDir string) string { return newLayout(dataDir).socket }
