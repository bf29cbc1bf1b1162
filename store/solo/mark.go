package solo

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/types"
)

// markFile is the name of the file in the member's folder that says up to where the log was synced. etcd does not look at it.
const markFile = "acknowledged"

// mark says that an entry of the log was synced, so that a log that ends before it is known to be damaged. It is written after each sync, and
// synced itself only when the log begins a new file: after a power cut it may be old, but it is never ahead of the log. While the machine
// runs, however the process ended, it is exact: what it does not name was never acknowledged.
type mark struct {
	// boot is the kernel's name for the time since the machine was started.
	boot          string
	node, cluster types.ID
	term, index   uint64
	// file is the number of the log's file.
	file uint64
}

// markBody is all of a mark but its checksum.
const markBody = "proa acknowledged 1 boot=%s node=%016x cluster=%016x term=%016x entry=%016x file=%016x"

// append appends the text of the mark to b. It is called for every change, so it makes no garbage.
func (m mark) append(b []byte) []byte {
	from := len(b)
	b = append(append(b, "proa acknowledged 1 boot="...), m.boot...)
	b = appendHex(append(b, " node="...), uint64(m.node), 16)
	b = appendHex(append(b, " cluster="...), uint64(m.cluster), 16)
	b = appendHex(append(b, " term="...), m.term, 16)
	b = appendHex(append(b, " entry="...), m.index, 16)
	b = appendHex(append(b, " file="...), m.file, 16)
	sum := crc32.ChecksumIEEE(b[from:])
	return append(appendHex(append(b, " crc="...), uint64(sum), 8), '\n')
}

// appendHex appends the last digits of a number.
func appendHex(b []byte, n uint64, digits int) []byte {
	for i := digits - 1; i >= 0; i-- {
		b = append(b, "0123456789abcdef"[n>>(4*i)&0xf])
	}
	return b
}

var errBadMark = errors.New("it cannot be read")

func parseMark(text string) (m mark, err error) {
	body, sum, ok := strings.Cut(strings.TrimRight(text, "\x00\n"), " crc=")
	if !ok || sum != fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(body))) {
		return mark{}, errBadMark
	}
	_, err = fmt.Sscanf(body, markBody,
		&m.boot, &m.node, &m.cluster, &m.term, &m.index, &m.file)
	if err != nil {
		return mark{}, errBadMark
	}
	return m, nil
}

// readMark returns what the mark of a folder says; the zero mark if there is none.
func readMark(dir string) (mark, error) {
	data, err := os.ReadFile(filepath.Join(dir, "member", markFile))
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(data) == 0 {
		return mark{}, nil
	}
	if err != nil {
		return mark{}, err
	}
	m, err := parseMark(string(data[:min(len(data), sector)]))
	if err != nil {
		return mark{}, fmt.Errorf("%s: %w", filepath.Join(dir, "member", markFile), err)
	}
	return m, nil
}

// thisBoot returns the kernel's name for the time since the machine was started; "none" if it has none.
func thisBoot() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if id := strings.TrimSpace(string(data)); err == nil && id != "" && !strings.ContainsAny(id, " \n") {
		return id
	}
	return "none"
}

// marker writes the mark of a log.
type marker struct {
	file *os.File
	mark mark
	text []byte // of the mark that was written last
	// synced says that the mark is on the disk with this number of the log's file.
	synced uint64
	isNew  bool
}

// openMarker opens the file of the mark. What it says is not changed before the next entry is acknowledged.
func openMarker(dir string, m mark) (*marker, error) {
	path := filepath.Join(dir, "member", markFile)
	_, err := os.Stat(path)
	isNew := errors.Is(err, fs.ErrNotExist)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	m.boot = thisBoot()
	return &marker{file: f, mark: m, isNew: isNew}, nil
}

// note writes that the log was synced up to an entry. The mark has a fixed length within one sector, so that it is never half written.
func (m *marker) note(term, index uint64) error {
	m.mark.term, m.mark.index = term, index
	m.text = m.mark.append(m.text[:0])
	if _, err := m.file.WriteAt(m.text, 0); err != nil {
		return err
	}
	if m.synced == m.mark.file && !m.isNew {
		return nil
	}
	if err := m.sync(); err != nil {
		return syncError{err}
	}
	return nil
}

func (m *marker) sync() error {
	if err := m.file.Sync(); err != nil {
		return err
	}
	if m.isNew {
		if err := syncDir(filepath.Dir(m.file.Name())); err != nil {
			return err
		}
	}
	m.synced, m.isNew = m.mark.file, false
	return nil
}

// syncDir brings the names in a folder to the disk.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (m *marker) close() error {
	if m == nil || m.file == nil {
		return nil
	}
	f := m.file
	m.file = nil
	return f.Close()
}
