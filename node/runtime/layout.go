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

// layout is the paths of one runtime.
type layout struct {
	dir    string // the whole folder
	root   string // what survives a reboot: images, file systems of containers
	state  string // what does not
	run    string // sockets; below dir, unless that path is too long for them
	socket string
	shims  string // sockets of the shims
	log    string
	lock   string
	boot   string // the boot in which the state was made
	// network has the configuration of network plugins, if the agent gives no other folder.
	network string
}

const (
	// socketLimit is the longest path of a socket.
	socketLimit = 107
	// shimLimit is the longest folder of the shims' sockets that containerd accepts.
	shimLimit = 42
	// shortRun is the folder of sockets whose path in the data folder would be too long.
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
		log: filepath.Join(dir, "containerd.log"), lock: filepath.Join(dir, "lock"), boot: filepath.Join(dir, "boot"),
		network: filepath.Join(dir, "net.d"),
	}
}

// config returns the file of a configuration. Its name contains a hash of the contents, so that the arguments of a
// process show which configuration it uses.
func (l layout) config(text string) string {
	sum := sha256.Sum256([]byte(text))
	return filepath.Join(l.dir, "config-"+hex.EncodeToString(sum[:6])+".toml")
}

// isConfig reports whether a file is a configuration of this runtime.
func (l layout) isConfig(file string) bool {
	name := filepath.Base(file)
	return filepath.Dir(file) == l.dir && strings.HasPrefix(name, "config-") && strings.HasSuffix(name, ".toml")
}

// make creates the folders. Processes of user namespaces pass through them, so everybody may enter them, but not list
// them.
func (l layout) make() error {
	for _, dir := range []string{l.dir, l.root, l.state, l.run} {
		if err := os.MkdirAll(dir, 0o711); err != nil { //nolint:gosec // G301: processes of user namespaces pass through it
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

// ErrInUse says that another process has locked the folder. A killed process holds its lock until the kernel has ended
// it.
var ErrInUse = errors.New("another process runs the runtime")

// lockFolder locks the folder, so that no other process runs containerd in it while this one lives.
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

// forgetOldBoot removes the state of an earlier boot: its processes, mounts and namespaces no longer exist. A state
// folder in memory is emptied by the reboot itself.
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

// emptyFolder removes the contents of a folder, but nothing that is mounted there.
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

// Socket returns the CRI socket of the runtime in a folder.
func Socket(dataDir string) string { return newLayout(dataDir).socket }
