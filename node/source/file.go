package source

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

	"proa.dev/node/clock"
)

// settle is how long a folder must be quiet before it is read: an editor writes a file in several steps.
const settle = 50 * time.Millisecond

// follow follows a folder of manifests, or a single one. The kernel tells of changes; the folder is read from time to time all
// the same, as not every filesystem is told of.
func (s *Source) follow(ctx context.Context) {
	changes := make(chan struct{}, 1)
	m := &manifests{known: map[string]known{}}
	var eye *watch
	for ctx.Err() == nil {
		// The new watch is there before the old one ends and before anything is read, so nothing is missed. A new one each time
		// also sees a folder that was replaced.
		next, err := notice(s.Folder, changes)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.Log.Warn("the folder of static Pods is only read from time to time", "folder", s.Folder, "err", err)
		}
		eye.close()
		eye = next
		s.load(ctx, m)
		t := time.NewTimer(s.FolderEvery)
		select {
		case <-ctx.Done():
		case <-t.C:
		case <-changes:
			clock.Sleep(ctx, settle)
		}
		t.Stop()
	}
	eye.close()
}

// load reads everything and hands it on.
func (s *Source) load(ctx context.Context, m *manifests) {
	pods, troubles, err := m.read(s.Folder, s.origin(FromFile, ""))
	for _, t := range troubles {
		s.Log.Error("a manifest cannot be used", "err", t)
	}
	if err != nil {
		s.Log.Error("the static Pods cannot be read; those that run stay", "folder", s.Folder, "err", err)
		return
	}
	s.tell(ctx, batch{source: FromFile, all: pods, whole: true})
}

// manifests remembers what files had, so that an unchanged file is not read again, and one that became unreadable does not end
// a Pod that runs well.
type manifests struct{ known map[string]known }

type known struct {
	size    int64
	changed time.Time
	pod     *corev1.Pod
	told    bool // that the file cannot be used
}

// read returns the Pods of a folder or file. A folder that is not there has none. An error means that nothing is known.
func (m *manifests) read(at string, from origin) (pods []*corev1.Pod, troubles []error, err error) {
	files, err := list(at)
	if err != nil {
		return nil, nil, err
	}
	now := map[string]known{}
	taken := map[name]string{}
	for _, file := range files {
		k, err := m.one(file, from)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil && !k.told {
			troubles = append(troubles, fmt.Errorf("%s: %w", file, err))
			k.told = true
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

// list names the files, in order. Hidden files and folders are not read.
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

// one reads a file, or remembers it. With an error comes what the file had before.
func (m *manifests) one(file string, from origin) (known, error) {
	before := m.known[file]
	st, err := os.Stat(file)
	if err != nil {
		return before, err
	}
	if !st.Mode().IsRegular() {
		return known{}, nil // a link to a folder, a pipe
	}
	if before.size == st.Size() && before.changed.Equal(st.ModTime()) && (before.pod != nil || before.told) {
		return before, nil
	}
	k := known{size: st.Size(), changed: st.ModTime(), pod: before.pod}
	text, err := bounded(file)
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

func bounded(file string) ([]byte, error) {
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
