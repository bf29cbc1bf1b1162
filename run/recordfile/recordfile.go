// Package recordfile keeps the latest records of package hop in a file, so that traces survive a restart of the server. What is in the
// file can be lost without harm: a file that cannot be read is ignored.
package recordfile

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"proa.dev/hop"
)

const (
	// Name is the name of the file in the data folder; with unfinished behind it, it is a file that is being written.
	Name       = "trace-records"
	unfinished = ".new"
	// header is the first line of a file; its number is the version of what follows.
	header = "proa hop records 1"
	// MaxRecords is how many records a file has at most, and maxBytes how large it is.
	MaxRecords = 8000
	maxBytes   = 16 << 20
	maxLine    = 256 << 10
)

// stored is a record as it is in the file, one to a line. Bodies of requests are never stored.
type stored struct {
	UID       types.UID                    `json:"uid,omitempty"`
	Rev       int64                        `json:"rev,omitempty"`
	Verb      string                       `json:"verb"`
	Group     string                       `json:"group,omitempty"`
	Resource  string                       `json:"resource,omitempty"`
	Sub       string                       `json:"sub,omitempty"`
	Namespace string                       `json:"ns,omitempty"`
	Name      string                       `json:"name,omitempty"`
	User      string                       `json:"user,omitempty"`
	Code      int                          `json:"code,omitempty"`
	Start     time.Time                    `json:"start"`
	Hops      map[hop.Hop][2]time.Duration `json:"hops,omitempty"` // took and wait
	Steps     []hop.Step                   `json:"steps,omitempty"`
	CauseUID  types.UID                    `json:"causeUID,omitempty"`
	CauseRev  int64                        `json:"causeRev,omitempty"`
	Origin    *hop.Origin                  `json:"origin,omitempty"`
	Process   string                       `json:"process,omitempty"`
	Open      bool                         `json:"open,omitempty"`
	Error     string                       `json:"error,omitempty"`
	Refused   hop.Hop                      `json:"refused,omitempty"`
	Ready     bool                         `json:"ready,omitempty"`
}

func store(r *hop.Record) *stored {
	s := &stored{
		UID: r.UID, Rev: r.Rev, Verb: r.Verb, Group: r.Group, Resource: r.Resource, Sub: r.Subresource, Namespace: r.Namespace,
		Name: r.Name, User: r.User, Code: r.Code, Start: r.Start, Steps: r.Steps, CauseUID: r.CauseUID, CauseRev: r.CauseRev,
		Origin:  r.Origin,
		Process: r.Process, Open: r.Open, Error: r.Error, Refused: r.Refused, Ready: r.Ready,
	}
	for h := hop.Client; h <= hop.Network; h++ {
		if r.Took[h] != 0 || r.Wait[h] != 0 {
			if s.Hops == nil {
				s.Hops = map[hop.Hop][2]time.Duration{}
			}
			s.Hops[h] = [2]time.Duration{r.Took[h], r.Wait[h]}
		}
	}
	return s
}

// record returns the record of a line, if it can be one.
func (s *stored) record() (hop.Record, error) {
	r := hop.Record{
		UID: s.UID, Rev: s.Rev, Verb: s.Verb, Group: s.Group, Resource: s.Resource, Subresource: s.Sub, Namespace: s.Namespace,
		Name: s.Name, User: s.User, Code: s.Code, Start: s.Start, Steps: s.Steps, CauseUID: s.CauseUID, CauseRev: s.CauseRev,
		Origin:  s.Origin,
		Process: s.Process, Open: s.Open, Error: s.Error, Refused: s.Refused, Ready: s.Ready,
	}
	if s.Verb == "" || s.Start.IsZero() || s.Refused > hop.Network {
		return r, errors.New("a record without a verb, a start or a hop")
	}
	for h, times := range s.Hops {
		if h < hop.Client || h > hop.Network || times[0] < 0 || times[1] < 0 {
			return r, fmt.Errorf("a record with the times %v at hop %d", times, h)
		}
		r.Took[h], r.Wait[h] = times[0], times[1]
	}
	for _, step := range s.Steps {
		if step.Hop > hop.Network || step.Took < 0 || step.Wait < 0 {
			return r, fmt.Errorf("a record with a step at hop %d", step.Hop)
		}
	}
	return r, nil
}

// IsName tells whether a file of the data folder is one of this package.
func IsName(name string) bool { return name == Name || name == Name+unfinished }

// Save writes the newest records, which are sorted by start, in place of the file.
func Save(file string, records []hop.Record) error {
	if n := len(records); n > MaxRecords {
		records = records[n-MaxRecords:]
	}
	var lines [][]byte
	size := len(header) + 1
	for i := len(records) - 1; i >= 0; i-- { // the newest first, as long as there is room
		line, err := json.Marshal(store(&records[i]))
		if err != nil {
			return err
		}
		if size += len(line) + 1; size > maxBytes {
			break
		}
		lines = append(lines, line)
	}
	var out bytes.Buffer
	out.Grow(size)
	out.WriteString(header + "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		out.Write(lines[i])
		out.WriteByte('\n')
	}
	return replace(file, out.Bytes())
}

// replace writes a file under another name and then gives it its own.
func replace(file string, data []byte) error {
	if err := os.Remove(file + unfinished); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(file+unfinished, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // what went wrong before is the error
	}
	return err
}

// Load reads the records of a file. A file that does not exist has none.
func Load(file string) ([]hop.Record, error) {
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is no regular file")
	case info.Size() > maxBytes:
		return nil, fmt.Errorf("it has %d bytes, more than %d", info.Size(), maxBytes)
	}
	return Read(f)
}

// Read reads records. If one of them is damaged, none is returned: nobody knows what the others are then.
func Read(r io.Reader) ([]hop.Record, error) {
	lines := bufio.NewScanner(io.LimitReader(r, maxBytes))
	lines.Buffer(make([]byte, 0, 4096), maxLine)
	if !lines.Scan() || lines.Text() != header {
		return nil, errors.Join(errors.New("it does not begin as a file of records of this version"), lines.Err())
	}
	var out []hop.Record
	for lines.Scan() {
		var s stored
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(out)+2, err)
		}
		rec, err := s.record()
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", len(out)+2, err)
		}
		if out = append(out, rec); len(out) > MaxRecords {
			return nil, fmt.Errorf("it has more than %d records", MaxRecords)
		}
	}
	return out, lines.Err()
}

// fingerprint returns a text that changes when a record is added or changed: the number of records, the newest start, and how long they
// took together.
func fingerprint(records []hop.Record) string {
	var newest time.Time
	var sum time.Duration
	for i := range records {
		r := &records[i]
		if r.Start.After(newest) {
			newest = r.Start
		}
		for _, d := range r.Took {
			sum += d
		}
	}
	return fmt.Sprint(len(records), " ", newest.UnixNano(), " ", sum)
}
