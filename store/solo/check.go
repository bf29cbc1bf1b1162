package solo

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/schema"
)

// Findings is what a look at the data of a member has found, in sentences.
type Findings struct {
	// Facts say what is there, Notes what is odd and harmless, Damage what is not as it was written.
	Facts, Notes, Damage []string
}

// maxFindings bounds how much is said about a database.
const maxFindings = 10

// Check reads the data in a folder that no member uses, and changes nothing.
func Check(dir string) (*Findings, error) {
	f := &Findings{}
	in, err := inspectLog(dir)
	if err != nil {
		return nil, err
	}
	applied, _, err := f.checkDatabase(dir, in)
	if err != nil {
		return nil, err
	}
	err = checkLog(dir, in, applied)
	var d damage
	if errors.As(err, &d) {
		f.addDamage(d.what)
		err = nil
	}
	if err != nil || in == nil {
		return f, err
	}
	if in.unreadMark != nil {
		f.Notes = append(f.Notes, fmt.Sprintf("%v; a start goes on without it", in.unreadMark))
	}
	f.Facts = append(f.Facts, fmt.Sprintf("the log has the entries from %d to %d; files: %d", in.begin.GetIndex()+1, in.last, len(in.files)))
	if tail := in.tail(); len(f.Damage) == 0 && tail.restEnd > tail.end {
		f.Notes = append(f.Notes, fmt.Sprintf("the log ends with %d bytes of a write that was never finished, nor acknowledged; the next start removes them", tail.restEnd-tail.end))
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

// checkOldFiles looks at the files of the log that a start does not need.
func (f *Findings) checkOldFiles(dir string, in *inspection) error {
	all, err := segmentFiles(datadir.ToWALDir(dir))
	if err != nil {
		return err
	}
	for _, s := range all[:max(0, len(all)-len(in.files))] {
		if err := s.read(0, nil); err != nil {
			return err
		}
		if s.problem != "" || s.restEnd > s.end {
			f.Notes = append(f.Notes, fmt.Sprintf("the log's file %s is damaged at byte %d%s; nobody needs it any more", filepath.Base(s.path), s.end, s.because()))
		}
	}
	return nil
}

// checkDatabase reads the whole database, and returns the last entry of the log that it has, with its term.
func (f *Findings) checkDatabase(dir string, in *inspection) (applied, term uint64, err error) {
	path := datadir.ToBackendFileName(dir)
	err = checkDatabase(dir, in)
	var d damage
	if errors.As(err, &d) {
		f.addDamage(d.what)
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	if info, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		f.Notes = append(f.Notes, fmt.Sprintf("the database %s is missing or empty; the next start makes it from the log", path))
		return 0, 0, nil
	}
	applied, term, problems := readDatabase(path)
	f.Facts = append(f.Facts, fmt.Sprintf("the database has the entries of the log up to %d", applied))
	for _, p := range problems {
		f.addDamage(fmt.Sprintf("the database %s: %v", path, p))
	}
	return applied, term, nil
}

// appliedIndex returns the last entry of the log that a database has; 0 if it cannot be told.
func appliedIndex(path string) (applied uint64) {
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		return 0
	}
	_ = viewDatabase(path, func(tx *bolt.Tx) {
		if meta := tx.Bucket(schema.Meta.Name()); meta != nil {
			applied = number(meta.Get(schema.MetaConsistentIndexKeyName))
		}
	})
	return applied
}

// readDatabase looks at every page of a database, and returns the last entry of the log that it has, with its term.
func readDatabase(path string) (applied, term uint64, problems []error) {
	err := viewDatabase(path, func(tx *bolt.Tx) {
		if meta := tx.Bucket(schema.Meta.Name()); meta != nil {
			applied, term = number(meta.Get(schema.MetaConsistentIndexKeyName)), number(meta.Get(schema.MetaTermKeyName))
		}
		for err := range tx.Check() {
			// What it has to say is read to its end, or it would wait for ever.
			if len(problems) < maxFindings {
				problems = append(problems, err)
			}
		}
	})
	if err != nil {
		problems = append(problems, err)
	}
	return applied, term, problems
}

// viewDatabase reads a database. It panics at places that are not what they should be, which becomes an error.
func viewDatabase(path string, view func(*bolt.Tx)) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return err
	}
	defer db.Close()
	return db.View(func(tx *bolt.Tx) error {
		view(tx)
		return nil
	})
}

func number(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}
