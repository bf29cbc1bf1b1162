// Package datarepair checks the data of a stopped etcd member for damage, and repairs it by keeping the part of the log
// that can be read.
package datarepair

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/storage/datadir"

	"proa.dev/store/singlemember/memberdb"
	"proa.dev/store/singlemember/memberlog"
)

// Findings is the result of checking the data of a member, as sentences.
type Findings struct {
	// Facts describe the data, Notes are unusual but harmless, Damage is data that is not what was written.
	Facts, Notes, Damage []string
}

// Check reads the data in a folder that no member uses, and changes nothing.
func Check(dir string) (*Findings, error) {
	f := &Findings{}
	in, err := memberlog.Inspect(dir)
	if err != nil {
		return nil, err
	}
	applied, _, err := f.checkDatabase(dir, in)
	if err != nil {
		return nil, err
	}
	err = memberlog.Check(dir, in, applied)
	var d memberlog.Damage
	if errors.As(err, &d) {
		f.addDamage(d.What)
		err = nil
	}
	if err != nil || in == nil {
		return f, err
	}
	if in.AcknowledgedErr != nil {
		f.Notes = append(f.Notes, fmt.Sprintf("%v; a start goes on without it", in.AcknowledgedErr))
	}
	f.Facts = append(f.Facts, fmt.Sprintf("the log has the entries from %d to %d; files: %d", in.Begin.GetIndex()+1, in.Last,
		len(in.Files)))
	if tail := in.Tail(); len(f.Damage) == 0 && tail.RestEnd > tail.End {
		f.Notes = append(f.Notes, fmt.Sprintf("the log ends with %d bytes of a write that was never finished, nor acknowledged; the next start removes them", tail.RestEnd-tail.End))
	}
	return f, f.checkOldFiles(dir, in)
}

func (f *Findings) addDamage(what string) {
	for _, other := range f.Damage {
		if other == what {
			return
		}
	}
	f.Damage = append(f.Damage, what)
}

// checkOldFiles checks the segments of the log that a start does not need.
func (f *Findings) checkOldFiles(dir string, in *memberlog.Inspection) error {
	all, err := memberlog.Segments(datadir.ToWALDir(dir))
	if err != nil {
		return err
	}
	for _, s := range all[:max(0, len(all)-len(in.Files))] {
		if err := s.Read(0, nil); err != nil {
			return err
		}
		if s.Problem != "" || s.RestEnd > s.End {
			f.Notes = append(f.Notes, fmt.Sprintf("the log's file %s is damaged at byte %d%s; nobody needs it any more",
				filepath.Base(s.Path), s.End, s.Reason()))
		}
	}
	return nil
}

// checkDatabase checks every page of the database, and returns the index and the term of the last entry that it
// contains.
func (f *Findings) checkDatabase(dir string, in *memberlog.Inspection) (applied, term uint64, err error) {
	path := datadir.ToBackendFileName(dir)
	err = memberdb.CheckSize(dir, in)
	var d memberlog.Damage
	if errors.As(err, &d) {
		f.addDamage(d.What)
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	if info, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		f.Notes = append(f.Notes, fmt.Sprintf("the database %s is missing or empty; the next start makes it from the log", path))
		return 0, 0, nil
	}
	applied, term, problems := memberdb.CheckPages(path)
	f.Facts = append(f.Facts, fmt.Sprintf("the database has the entries of the log up to %d", applied))
	for _, p := range problems {
		f.addDamage(fmt.Sprintf("the database %s: %v", path, p))
	}
	return applied, term, nil
}
