package memberlog

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

// AcknowledgedFile is the name of the file in the member's folder with the last entry of the log that was synced. etcd
// ignores it.
const AcknowledgedFile = "acknowledged"

// Acknowledgment is the last entry of the log that was synced. A log that ends before it is damaged. It is
// written after each sync of the log, but synced itself only when a new segment is started: after a power failure it
// may be old, but never ahead of the log. As long as the machine is not rebooted it is exact, however the process
// ended: entries after it were never acknowledged.
type Acknowledgment struct {
	// Boot is the boot ID of the kernel.
	Boot          string
	Node, Cluster types.ID
	Term, Index   uint64
	// File is the number of the newest segment.
	File uint64
}

// acknowledgmentFormat is the text of an acknowledgment without its checksum.
const acknowledgmentFormat = "proa acknowledged 1 boot=%s node=%016x cluster=%016x term=%016x entry=%016x file=%016x"

// Append appends the text of the acknowledgment to b. It is called for every change, so it does not allocate.
func (m Acknowledgment) Append(b []byte) []byte {
	from := len(b)
	b = append(append(b, "proa acknowledged 1 boot="...), m.Boot...)
	b = appendHex(append(b, " node="...), uint64(m.Node), 16)
	b = appendHex(append(b, " cluster="...), uint64(m.Cluster), 16)
	b = appendHex(append(b, " term="...), m.Term, 16)
	b = appendHex(append(b, " entry="...), m.Index, 16)
	b = appendHex(append(b, " file="...), m.File, 16)
	sum := crc32.ChecksumIEEE(b[from:])
	return append(appendHex(append(b, " crc="...), uint64(sum), 8), '\n')
}

// appendHex appends the last hexadecimal digits of a number.
func appendHex(b []byte, n uint64, digits int) []byte {
	for i := digits - 1; i >= 0; i-- {
		b = append(b, "0123456789abcdef"[n>>(4*i)&0xf])
	}
	return b
}

var errBadAcknowledgment = errors.New("it cannot be read")

// ParseAcknowledgment parses the text of an acknowledgment file.
func ParseAcknowledgment(text string) (m Acknowledgment, err error) {
	body, sum, ok := strings.Cut(strings.TrimRight(text, "\x00\n"), " crc=")
	if !ok || sum != fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(body))) {
		return Acknowledgment{}, errBadAcknowledgment
	}
	_, err = fmt.Sscanf(body, acknowledgmentFormat,
		&m.Boot, &m.Node, &m.Cluster, &m.Term, &m.Index, &m.File)
	if err != nil {
		return Acknowledgment{}, errBadAcknowledgment
	}
	return m, nil
}

// ReadAcknowledged returns the acknowledgment of a folder; the zero value if there is none.
func ReadAcknowledged(dir string) (Acknowledgment, error) {
	data, err := os.ReadFile(filepath.Join(dir, "member", AcknowledgedFile))
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(data) == 0 {
		return Acknowledgment{}, nil
	}
	if err != nil {
		return Acknowledgment{}, err
	}
	m, err := ParseAcknowledgment(string(data[:min(len(data), Sector)]))
	if err != nil {
		return Acknowledgment{}, fmt.Errorf("%s: %w", filepath.Join(dir, "member", AcknowledgedFile), err)
	}
	return m, nil
}

// BootID returns the boot ID of the kernel; "none" if it has none.
func BootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if id := strings.TrimSpace(string(data)); err == nil && id != "" && !strings.ContainsAny(id, " \n") {
		return id
	}
	return "none"
}

// acknowledgmentFile is the open acknowledgment file of a log.
type acknowledgmentFile struct {
	file *os.File
	Last Acknowledgment
	text []byte // the text that was written last
	// synced is the number of the segment with which the file was last synced.
	synced uint64
	isNew  bool
}

// openAcknowledgmentFile opens the acknowledgment file. It is not changed before the next entry is acknowledged.
func openAcknowledgmentFile(dir string, m Acknowledgment) (*acknowledgmentFile, error) {
	path := filepath.Join(dir, "member", AcknowledgedFile)
	_, err := os.Stat(path)
	isNew := errors.Is(err, fs.ErrNotExist)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	m.Boot = BootID()
	return &acknowledgmentFile{file: f, Last: m, isNew: isNew}, nil
}

// write writes the acknowledgment of an entry. It has a fixed length within one sector, so it is never partially written.
func (m *acknowledgmentFile) write(term, index uint64) error {
	m.Last.Term, m.Last.Index = term, index
	m.text = m.Last.Append(m.text[:0])
	if _, err := m.file.WriteAt(m.text, 0); err != nil {
		return err
	}
	if m.synced == m.Last.File && !m.isNew {
		return nil
	}
	if err := m.sync(); err != nil {
		return SyncError{err}
	}
	return nil
}

func (m *acknowledgmentFile) sync() error {
	if err := m.file.Sync(); err != nil {
		return err
	}
	if m.isNew {
		if err := SyncDir(filepath.Dir(m.file.Name())); err != nil {
			return err
		}
	}
	m.synced, m.isNew = m.Last.File, false
	return nil
}

// SyncDir syncs a folder, which makes the creation and renaming of its files durable.
func SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (m *acknowledgmentFile) close() error {
	if m == nil || m.file == nil {
		return nil
	}
	f := m.file
	m.file = nil
	return f.Close()
}
