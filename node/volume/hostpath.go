package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// hostPath shows a path of the host, after a look at what is there.
func hostPath(s *corev1.HostPathVolumeSource) (*mounted, error) {
	if err := noBacksteps(s.Path); err != nil {
		return nil, fmt.Errorf("invalid HostPath `%s`: %w", s.Path, err)
	}
	kind := corev1.HostPathUnset
	if s.Type != nil {
		kind = *s.Type
	}
	if err := checkHostPath(s.Path, kind); err != nil {
		return nil, err
	}
	return &mounted{path: s.Path}, nil
}

func noBacksteps(path string) error {
	for name := range strings.SplitSeq(path, "/") {
		if name == ".." {
			return errors.New("must not contain '..'")
		}
	}
	return nil
}

// checkHostPath makes what may be made, and refuses what is of another type than it should be.
func checkHostPath(path string, kind corev1.HostPathType) error {
	switch kind {
	case corev1.HostPathUnset:
		return nil
	case corev1.HostPathDirectoryOrCreate:
		if !exists(path) {
			return os.MkdirAll(path, 0o755) //nolint:gosec // G301: as Kubernetes makes them
		}
		return mustBe(path, "directory", corev1.HostPathDirectory)
	case corev1.HostPathDirectory:
		return mustBe(path, "directory", kind)
	case corev1.HostPathFileOrCreate:
		if !exists(path) {
			return newFile(path)
		}
		return mustBe(path, "file", corev1.HostPathFile)
	case corev1.HostPathFile:
		return mustBe(path, "file", kind)
	case corev1.HostPathSocket:
		return mustBe(path, "socket file", kind)
	case corev1.HostPathCharDev:
		return mustBe(path, "character device", kind)
	case corev1.HostPathBlockDev:
		return mustBe(path, "block device", kind)
	}
	return fmt.Errorf("%s is an invalid volume type", kind)
}

func newFile(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE, 0o644) //nolint:gosec // G302: as Kubernetes makes them
	if err != nil {
		return err
	}
	return f.Close()
}

func mustBe(path, called string, kind corev1.HostPathType) error {
	got, err := typeOf(path)
	if err != nil {
		return fmt.Errorf("hostPath type check failed, %s is not a %s, unable to determine its type: %w", path, called, err)
	}
	if got != kind {
		return fmt.Errorf("hostPath type check failed: %s is not a %s, it's a %s", path, called, got)
	}
	return nil
}

// typeOf is the type of what is at a path.
func typeOf(path string) (corev1.HostPathType, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("path %q does not exist", path)
	}
	if err != nil {
		return "", err
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		return corev1.HostPathDirectory, nil
	case mode.IsRegular():
		return corev1.HostPathFile, nil
	case mode&fs.ModeSocket != 0:
		return corev1.HostPathSocket, nil
	case mode&fs.ModeCharDevice != 0:
		return corev1.HostPathCharDev, nil
	case mode&fs.ModeDevice != 0:
		return corev1.HostPathBlockDev, nil
	}
	return "", errors.New("only recognise file, directory, socket, block device and character device")
}
