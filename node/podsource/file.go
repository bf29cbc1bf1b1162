package podsource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/internal/wait"
)

// settle is how long to wait after a change before a folder is read: editors write a file in several steps.
const settle = 50 * time.Millisecond

// watchFolder reads a folder of manifests, or a single one, when inotify reports a change. It is also read periodically,
// because not every file system supports inotify.
func (s *Source) watchFolder(ctx context.Context) {
	changes := wait.NewSignal()
	m := &manifests{known: map[string]cachedManifest{}}
	var current *inotifyWatch
	for ctx.Err() == nil {
		// The new inotify watch exists before the old one is closed and before anything is read, so no change is
		// missed. A new watch each time also covers a folder that was replaced.
		next, err := watchPath(s.Folder, changes)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.Log.Warn("the folder of static Pods cannot be watched; it is read periodically", "folder", s.Folder, "err", err)
		}
		current.close()
		current = next
		s.load(ctx, m)
		t := time.NewTimer(s.FolderEvery)
		select {
		case <-ctx.Done():
		case <-t.C:
		case <-changes:
			_ = wait.Sleep(ctx, settle)
		}
		t.Stop()
	}
	current.close()
}

// load reads all manifests and sends them on.
func (s *Source) load(ctx context.Context, m *manifests) {
	pods, troubles, err := m.read(s.Folder, s.origin(FromFile, ""))
	for _, t := range troubles {
		s.Log.Error("a manifest cannot be used", "err", t)
	}
	if err != nil {
		s.Log.Error("the static Pods cannot be read; those that run stay", "folder", s.Folder, "err", err)
		return
	}
	s.send(ctx, batch{source: FromFile, all: pods, whole: true})
}

// manifests caches the contents of files, so that an unchanged file is not read again, and a file that became
// unreadable does not end a Pod that runs well.
type manifests struct{ known map[string]cachedManifest }

type cachedManifest struct {
	size    int64
	changed time.Time
	pod     *corev1.Pod
	logged  bool // the error of the file has been logged
}

// read returns the Pods of a folder or file. A folder that does not exist has none. After an error nothing is known.
func (m *manifests) read(at string, from origin) (pods []*corev1.Pod, troubles []error, err error) {
	files, err := list(at)
	if err != nil {
		return nil, nil, err
	}
	now := map[string]cachedManifest{}
	taken := map[name]string{}
	for _, file := range files {
		k, err := m.readFile(file, from)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil && !k.logged {
			troubles = append(troubles, fmt.Errorf("%s: %w", file, err))
			k.logged = true
		}
		now[file] = k
		if k.pod == nil {
			continue
		}
		if other, dup := taken[nameOf(k.pod)]; dup {
			troubles = append(troubles, fmt.Errorf("%s: due to duplicate pod name %q, which %s has, ignoring", file, k.pod.Name, other))
			continue
		}
		taken[nameOf(k.pod)] = file
		pods = append(pods, k.pod)
	}
	m.known = now
	return pods, troubles, nil
}

// list returns the files, in order. Hidden files and folders are skipped.
func list(at string) ([]string, error) {
	st, err := os.Stat(at)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case st.Mode().IsRegular():
		return []string{at}, nil
	case !st.IsDir():
		return nil, errors.New("path is not a directory or file")
	}
	entries, err := os.ReadDir(at)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if e.Name()[0] != '.' && !e.IsDir() {
			out = append(out, filepath.Join(at, e.Name()))
		}
	}
	return out, nil
}

// readFile reads a file, or returns it from the cache. Together with an error it returns what the file contained before.
func (m *manifests) readFile(file string, from origin) (cachedManifest, error) {
	before := m.known[file]
	st, err := os.Stat(file)
	if err != nil {
		return before, err
	}
	if !st.Mode().IsRegular() {
		return cachedManifest{}, nil // a link to a folder, or a pipe
	}
	if before.size == st.Size() && before.changed.Equal(st.ModTime()) && (before.pod != nil || before.logged) {
		return before, nil
	}
	k := cachedManifest{size: st.Size(), changed: st.ModTime(), pod: before.pod}
	text, err := readLimited(file)
	if err != nil {
		return k, err
	}
	from.at = file
	pods, err := decode(text, from)
	if err != nil {
		return k, err
	}
	k.pod = pods[0]
	return k, nil
}

func readLimited(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err == nil && len(text) > maxManifest {
		err = fmt.Errorf("it is longer than %d bytes", maxManifest)
	}
	return text, err
}
