// Package memberdb opens the database file of an etcd member, and checks it for damage before it is opened.
package memberdb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"proa.dev/store/singlemember/memberlog"
)

// The database begins with two meta pages, of which the valid one with the higher transaction is used. These are
// offsets in a meta page.
const (
	metaStart    = 16 // after the header that every page has
	metaLength   = 64
	metaMagic    = 0xED0CDAED
	metaPageSize = metaStart + 8
	metaPages    = metaStart + 40 // the number of pages in the file
	metaTx       = metaStart + 48
	metaChecksum = metaStart + 56
)

// CheckSize returns an error for a database that cannot be opened. This is checked before opening it, because the file
// is memory-mapped, and reading beyond the end of a truncated file would end the process. A missing or empty database
// is no error if the log has everything.
func CheckSize(dir string, in *memberlog.Inspection) error {
	path := datadir.ToBackendFileName(dir)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return checkRebuildable(path, "missing", in)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return checkRebuildable(path, "empty", in)
	}
	needed, err := sizeFromMeta(f)
	if err != nil {
		return memberlog.Damaged("the database %s: %v", path, err)
	}
	if info.Size() < needed {
		return memberlog.Damaged("the database %s is cut off: it has %d bytes of %d", path, info.Size(), needed)
	}
	return nil
}

// checkRebuildable returns an error unless the database can be rebuilt from the log.
func checkRebuildable(path, is string, in *memberlog.Inspection) error {
	if in == nil || in.Begin.GetIndex() == 0 {
		return nil
	}
	return memberlog.Damaged("the database %s is %s, and the log has only what was written after entry %d; restore a backup", path, is, in.Begin.GetIndex())
}

var errNoDatabase = errors.New("it is no database of etcd, or its beginning is destroyed")

// sizeFromMeta returns the size that a database has according to its meta pages.
func sizeFromMeta(r io.ReaderAt) (int64, error) {
	size, newest := int64(0), uint64(0)
	try := func(at int64) {
		page := make([]byte, metaStart+metaLength)
		if _, err := r.ReadAt(page, at); err != nil && !errors.Is(err, io.EOF) {
			return
		}
		sum := fnv.New64a()
		_, _ = sum.Write(page[metaStart:metaChecksum])
		pageSize := int64(binary.LittleEndian.Uint32(page[metaPageSize:]))
		tx := binary.LittleEndian.Uint64(page[metaTx:])
		if at > 0 && pageSize != at || binary.LittleEndian.Uint32(page[metaStart:]) != metaMagic ||
			binary.LittleEndian.Uint64(page[metaChecksum:]) != sum.Sum64() {
			return
		}
		if pages := int64(binary.LittleEndian.Uint64(page[metaPages:])); size == 0 || tx > newest {
			size, newest = pages*pageSize, tx
		}
	}
	try(0)
	// The second meta page follows the first; the page size is a power of two.
	for pageSize := int64(1 << 10); pageSize <= 1<<16; pageSize <<= 1 {
		try(pageSize)
	}
	if size <= 0 {
		return 0, fmt.Errorf("%w", errNoDatabase)
	}
	return size, nil
}

// AppliedIndex returns the index of the last entry that a database contains; 0 if that is not known.
func AppliedIndex(path string) (applied uint64) {
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		return 0
	}
	_ = viewReadOnly(path, func(tx *bolt.Tx) {
		if meta := tx.Bucket(schema.Meta.Name()); meta != nil {
			applied = decodeUint64(meta.Get(schema.MetaConsistentIndexKeyName))
		}
	})
	return applied
}

// CheckPages checks every page of a database, and returns the index and the term of the last entry that it contains.
func CheckPages(path string) (applied, term uint64, problems []error) {
	err := viewReadOnly(path, func(tx *bolt.Tx) {
		if meta := tx.Bucket(schema.Meta.Name()); meta != nil {
			applied, term = decodeUint64(meta.Get(schema.MetaConsistentIndexKeyName)), decodeUint64(meta.Get(schema.MetaTermKeyName))
		}
		for err := range tx.Check() {
			// The channel must be read to its end, otherwise the sender would block for ever.
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

// viewReadOnly calls view with a read transaction of a database. bbolt panics at damaged pages; that becomes an error.
func viewReadOnly(path string, view func(*bolt.Tx)) (err error) {
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

func decodeUint64(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// maxFindings bounds the number of problems that are reported for a database.
const maxFindings = 10
