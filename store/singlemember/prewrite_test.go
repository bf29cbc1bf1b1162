package singlemember

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPrewriteInMember checks prewriting in a member that uses several segments and makes snapshots.
func TestPrewriteInMember(t *testing.T) {
	cfg := config(t.TempDir())
	m := open(t, cfg)
	if m.log.PrewrittenFile() == nil {
		closeMember(t, m)
		t.Skip("nothing is written ahead here")
	}
	files := map[string]bool{}
	l := newAckedWrites()
	for n := range 400 {
		if err := l.write(t.Context(), m, fmt.Sprint(n, strings.Repeat("y", n)), true); err != nil {
			t.Fatal(err)
		}
		files[m.log.PrewrittenFile().Name()] = true
	}
	if len(files) < 2 {
		t.Errorf("only the files %v are prewritten", files)
	}
	// The file may have been removed from its folder by a snapshot.
	f, err := os.Open(fmt.Sprint("/proc/self/fd/", m.log.PrewrittenFile().Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if hole, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_HOLE); err != nil || hole < info.Size() {
		t.Errorf("a file of %d bytes, smaller than a step, is prewritten up to %d: %v", info.Size(), hole, err)
	}
	l.check(t, proaMember{m})
	closeMember(t, m)
	for _, useEtcd := range []bool{false, true} {
		s := startMember(t, useEtcd, cfg)
		l.check(t, s)
		s.stop(t)
	}
}
