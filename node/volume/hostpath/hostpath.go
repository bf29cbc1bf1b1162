// Package hostpath checks the paths of hostPath volumes: their type, which may make the path be created, and that they do not climb.
package hostpath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// CheckNoBacksteps refuses a path that contains "..".
func CheckNoBacksteps(path string) error {
	for name := range strings.SplitSeq(path, "/") {
		if name == ".." {
			return errors.New("must not contain '..'")
		}
	}
	return nil
}

// Check creates the path if its type allows that, and fails if it is of another type.
func Check(path string, kind corev1.HostPathType) error {
	switch kind {
	case corev1.HostPathUnset:
		return nil
	case corev1.HostPathDirectoryOrCreate:
		if !exists(path) {
			return os.MkdirAll(path, 0o755) //nolint:gosec // G301: as Kubernetes makes them
		}
		return checkType(path, "directory", corev1.HostPathDirectory)
	case corev1.HostPathDirectory:
		return checkType(path, "directory", kind)
	case corev1.HostPathFileOrCreate:
		if !exists(path) {
			return newFile(path)
		}
		return checkType(path, "file", corev1.HostPathFile)
	case corev1.HostPathFile:
		return checkType(path, "file", kind)
	case corev1.HostPathSocket:
		return checkType(path, "socket file", kind)
	case corev1.HostPathCharDev:
		return checkType(path, "character device", kind)
	case corev1.HostPathBlockDev:
		return checkType(path, "block device", kind)
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

func checkType(path, called string, kind corev1.HostPathType) error {
	got, err := TypeOf(path)
	if err != nil {
		return fmt.Errorf("hostPath type check failed, %s is not a %s, unable to determine its type: %w", path, called, err)
	}
	if got != kind {
		return fmt.Errorf("hostPath type check failed: %s is not a %s, it's a %s", path, called, got)
	}
	return nil
}

// TypeOf returns the type of a path.
func TypeOf(path string) (corev1.HostPathType, error) {
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

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
