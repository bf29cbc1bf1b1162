package preflight

import (
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Targets says what to check.
type Targets struct {
	// DataDir is where the node will keep its files; it need not exist yet.
	DataDir string
	// BinDir is where the programs in Parts should be.
	BinDir string
	Parts  []string
	// Carried are the programs that proa unpacks there itself.
	Carried []string
	Ports   []Port
}

// GatherFacts gathers the facts about this host. It changes nothing.
func GatherFacts(w Targets) Facts {
	f := Facts{Root: os.Geteuid() == 0, DataDir: w.DataDir, BinDir: w.BinDir}
	f.read(os.DirFS("/"))
	for _, p := range w.Ports {
		if !p.Own {
			p.try()
		}
		f.Ports = append(f.Ports, p)
	}
	for _, name := range w.Parts {
		p := Part{Name: name}
		path := filepath.Join(w.BinDir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			p.Path = path
		}
		if slices.Contains(w.Carried, name) {
			p.Path = "carried by this program"
		}
		f.Parts = append(f.Parts, p)
	}
	f.disk(w.DataDir)
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		f.OpenFiles = limit.Max
	}
	// With no modes set this only reads; the state is TIME_ERROR while the clock is not synchronized.
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	f.ClockSynchronized = err == nil && state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0
	return f
}

// disk measures the file system of a folder, which need not exist yet.
func (f *Facts) disk(dir string) {
	for {
		var s unix.Statfs_t
		if err := unix.Statfs(dir, &s); err == nil {
			f.DiskFree, f.DiskSize = int64(s.Bavail)*s.Bsize, int64(s.Blocks)*s.Bsize
			f.DataFS = fileSystem(int64(s.Type))
			return
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return
		}
		dir = parent
	}
}

// fileSystem returns the name of a file system type, as far as it is relevant.
func fileSystem(kind int64) string {
	switch kind {
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlay"
	case unix.NFS_SUPER_MAGIC:
		return "nfs"
	case unix.FUSE_SUPER_MAGIC:
		return "fuse"
	case unix.V9FS_MAGIC:
		return "9p"
	}
	return ""
}
