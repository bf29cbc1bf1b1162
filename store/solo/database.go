package solo

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"

	"go.etcd.io/etcd/server/v3/storage/datadir"
)

// The database begins with two pages of its own, of which the valid one with the higher transaction counts. These are places in such a page.
const (
	metaStart    = 16 // behind the head that every page has
	metaLength   = 64
	metaMagic    = 0xED0CDAED
	metaPageSize = metaStart + 8
	metaPages    = metaStart + 40 // how many pages the file has
	metaTx       = metaStart + 48
	metaChecksum = metaStart + 56
)

// checkDatabase refuses a database that cannot be opened, before it is: one that is shorter than it says is read through memory, and ends the process.
// One that is missing or empty is made from the log, if that has everything.
func checkDatabase(dir string, in *inspection) error {
	path := datadir.ToBackendFileName(dir)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return databaseFromLog(path, "missing", in)
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
		return databaseFromLog(path, "empty", in)
	}
	needed, err := databaseSize(f)
	if err != nil {
		return damaged("the database %s: %v", path, err)
	}
	if info.Size() < needed {
		return damaged("the database %s is cut off: it has %d bytes of %d", path, info.Size(), needed)
	}
	return nil
}

// databaseFromLog says whether a start can do without the database.
func databaseFromLog(path, is string, in *inspection) error {
	if in == nil || in.begin.GetIndex() == 0 {
		return nil
	}
	return damaged("the database %s is %s, and the log has only what was written after entry %d; restore a backup", path, is, in.begin.GetIndex())
}

var errNoDatabase = errors.New("it is no database of etcd, or its beginning is destroyed")

// databaseSize returns how many bytes a database has by its own account.
func databaseSize(r io.ReaderAt) (int64, error) {
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
		if at > 0 && pageSize != at || binary.LittleEndian.Uint32(page[metaStart:]) != metaMagic || binary.LittleEndian.Uint64(page[metaChecksum:]) != sum.Sum64() {
			return
		}
		if pages := int64(binary.LittleEndian.Uint64(page[metaPages:])); size == 0 || tx > newest {
			size, newest = pages*pageSize, tx
		}
	}
	try(0)
	// The second one is a page further, and a page is a power of two.
	for pageSize := int64(1 << 10); pageSize <= 1<<16; pageSize <<= 1 {
		try(pageSize)
	}
	if size <= 0 {
		return 0, fmt.Errorf("%w", errNoDatabase)
	}
	return size, nil
}
