package datafolder

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
)

// clustersFile returns the path of the list of data folders of the clusters that this user has started, one a line.
func clustersFile() string { return Default() + ".clusters" }

// maxClusters bounds the list; the oldest ones are dropped.
const maxClusters = 1000

// maxListBytes bounds how much of the list is read.
const maxListBytes = 1 << 20

// Remember adds a data folder to the list of this user's clusters.
func Remember(dir string) error {
	return editClusters(func(dirs []string) []string {
		if slices.Contains(dirs, dir) {
			return dirs
		}
		dirs = append(dirs, dir)
		return dirs[max(0, len(dirs)-maxClusters):]
	})
}

// Forget removes a data folder from the list.
func Forget(dir string) error {
	return editClusters(func(dirs []string) []string {
		return slices.DeleteFunc(dirs, func(d string) bool { return d == dir })
	})
}

// Known returns the data folders of this user's clusters that still exist, including the default one.
func Known() ([]string, error) {
	data, err := os.ReadFile(clustersFile())
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("read the list of clusters: %w", err)
	}
	dirs := existingDirs(Default() + "\n" + string(data))
	slices.Sort(dirs)
	return slices.Compact(dirs), nil
}

// editClusters changes the list under a lock, and drops folders that do not exist any more.
func editClusters(edit func([]string) []string) error {
	f, err := os.OpenFile(clustersFile(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open the list of clusters: %w", err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock the list of clusters: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxListBytes))
	if err != nil {
		return fmt.Errorf("read the list of clusters: %w", err)
	}
	text := strings.Join(append(edit(existingDirs(string(data))), ""), "\n")
	if text == string(data) {
		return nil
	}
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("write the list of clusters: %w", err)
	}
	if _, err := f.WriteAt([]byte(text), 0); err != nil {
		return fmt.Errorf("write the list of clusters: %w", err)
	}
	return nil
}

// existingDirs returns the lines of the list that are folders.
func existingDirs(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "\n"), func(d string) bool { return d == "" || !isDir(d) })
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
