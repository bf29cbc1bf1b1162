package subpath

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// errNotReadable says that a path of a volume is not a regular file of the permitted size.
var errNotReadable = errors.New("it is not a regular file of the permitted size")

// ReadFile returns the contents of a regular file of a volume that has at most limit bytes. Containers may replace and extend the
// file meanwhile, so it is found once, what was found is examined before it is opened, and reading stops at the limit. The agent
// neither waits for a writer of a named pipe nor opens a device.
func ReadFile(volume, sub string, limit int64) ([]byte, error) {
	if err := CheckPath(sub); err != nil {
		return nil, err
	}
	resolved, err := filepath.EvalSymlinks(volume)
	if err != nil {
		return nil, fmt.Errorf("find the volume: %w", err)
	}
	base, err := unix.Open(resolved, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the volume %s: %w", resolved, err)
	}
	defer func() { _ = unix.Close(base) }()
	fd, err := openVolume{base, resolved}.open(sub)
	if err != nil {
		return nil, fmt.Errorf("open %s in the volume: %w", sub, err)
	}
	defer func() { _ = unix.Close(fd) }()
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return nil, fmt.Errorf("examine %s in the volume: %w", sub, err)
	}
	if s.Mode&unix.S_IFMT != unix.S_IFREG || s.Size > limit {
		return nil, fmt.Errorf("read %s in the volume: %w", sub, errNotReadable)
	}
	// Without O_NONBLOCK a lease that a container holds on the file delays this.
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s in the volume: %w", sub, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s in the volume: %w", sub, err)
	}
	if int64(len(text)) > limit {
		return nil, fmt.Errorf("read %s in the volume: %w", sub, errNotReadable)
	}
	return text, nil
}
