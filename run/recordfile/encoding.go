package recordfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"proa.dev/hop"
)

// header is how a file begins; its number is the version of what follows: records, the newest first, each behind its length in bytes, and
// at the end a checksum of all that. Records are encoded by hand, because encoding all of them by reflection takes a tenth of a second.
// Bodies of requests are never stored.
const header = "proa hop records 2\n"

const checksumSize = crc32.Size

// The flags of a record.
const (
	isOpen = 1 << iota
	isReady
	hasOrigin
	hasBegan // the origin says when its session began
	isRemoved
)

// checksum returns the checksum of what is before it in a file.
func checksum(data []byte) []byte {
	return binary.LittleEndian.AppendUint32(nil, crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)))
}

// encode returns a file with the newest records, which are sorted by start.
func encode(records []hop.Record) []byte {
	if n := len(records); n > MaxRecords {
		records = records[n-MaxRecords:]
	}
	out := append(make([]byte, 0, len(records)*sizeOfMost), header...)
	var one []byte
	for i := len(records) - 1; i >= 0; i-- {
		one = appendRecord(one[:0], &records[i])
		if len(out)+binary.MaxVarintLen64+len(one)+checksumSize > maxBytes {
			break
		}
		out = append(binary.AppendUvarint(out, uint64(len(one))), one...)
	}
	return append(out, checksum(out)...)
}

// sizeOfMost is the size that most records do not exceed, in bytes.
const sizeOfMost = 400

// appendRecord appends a record to what is encoded.
func appendRecord(to []byte, r *hop.Record) []byte {
	flags := byte(0)
	if r.Open {
		flags |= isOpen
	}
	if r.Ready {
		flags |= isReady
	}
	if r.Removed {
		flags |= isRemoved
	}
	if r.Origin != nil {
		flags |= hasOrigin
		if !r.Origin.Began.IsZero() {
			flags |= hasBegan
		}
	}
	to = append(to, flags, byte(r.Refused))
	to = appendTexts(to, string(r.UID), r.Verb, r.Group, r.Resource, r.Subresource, r.Namespace, r.Name, r.User, string(r.CauseUID),
		r.Process, r.Error)
	to = binary.AppendVarint(to, r.Rev)
	to = binary.AppendVarint(to, r.CauseRev)
	to = binary.AppendVarint(to, int64(r.Code))
	to = appendTime(to, r.Start)
	to = appendHops(to, r)
	to = binary.AppendUvarint(to, uint64(len(r.Steps)))
	for i := range r.Steps {
		s := &r.Steps[i]
		failed := byte(0)
		if s.Failed {
			failed = 1
		}
		to = appendTexts(append(to, byte(s.Hop), failed), s.Name, s.Detail)
		for _, d := range [...]time.Duration{s.After, s.Took, s.Wait} {
			to = binary.AppendVarint(to, int64(d))
		}
	}
	if o := r.Origin; o != nil {
		if to = appendTexts(to, o.Agent, o.AuditID, o.Session, o.Command, o.TraceParent); flags&hasBegan != 0 {
			to = appendTime(to, o.Began)
		}
	}
	return to
}

// appendHops appends the hops at which a record has times, each behind its number, and a zero.
func appendHops(to []byte, r *hop.Record) []byte {
	for h := hop.Client; h <= hop.Network; h++ {
		if r.Took[h] != 0 || r.Wait[h] != 0 {
			to = append(to, byte(h))
			to = binary.AppendVarint(to, int64(r.Took[h]))
			to = binary.AppendVarint(to, int64(r.Wait[h]))
		}
	}
	return append(to, 0)
}

// appendTexts appends texts, each behind its length.
func appendTexts(to []byte, texts ...string) []byte {
	for _, s := range texts {
		to = append(binary.AppendUvarint(to, uint64(len(s))), s...)
	}
	return to
}

// appendTime appends a time in seconds and nanoseconds.
func appendTime(to []byte, t time.Time) []byte {
	return binary.AppendUvarint(binary.AppendVarint(to, t.Unix()), uint64(t.Nanosecond()))
}

// decode reads a file. If anything in it is damaged, it returns no records: nobody knows what the others are then.
func decode(file []byte) ([]hop.Record, error) {
	if !bytes.HasPrefix(file, []byte(header)) || len(file) < len(header)+checksumSize {
		return nil, errors.New("it does not begin as a file of records of this version")
	}
	body, sum := file[:len(file)-checksumSize], file[len(file)-checksumSize:]
	if !bytes.Equal(checksum(body), sum) {
		return nil, errors.New("its checksum is wrong")
	}
	var out []hop.Record
	in := &decoder{left: body[len(header):], known: map[string]string{}}
	for len(in.left) > 0 {
		if len(out) == MaxRecords {
			return nil, fmt.Errorf("it has more than %d records", MaxRecords)
		}
		one := &decoder{left: in.bytes(), known: in.known}
		r := one.record()
		if err := errors.Join(in.err, one.err); err != nil {
			return nil, fmt.Errorf("record %d: %w", len(out)+1, err)
		}
		if len(one.left) > 0 {
			return nil, fmt.Errorf("record %d: there is something after its end", len(out)+1)
		}
		out = append(out, r)
	}
	slices.Reverse(out)
	return out, nil
}

// decoder reads what is encoded. After the first error it returns nothing but zeros.
type decoder struct {
	left []byte
	err  error
	// known has the texts that were read, so that those which are in many records are in memory once.
	known map[string]string
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err, d.left = fmt.Errorf(format, args...), nil
	}
}

func (d *decoder) byte() byte {
	if len(d.left) == 0 {
		d.fail("it is cut off")
		return 0
	}
	b := d.left[0]
	d.left = d.left[1:]
	return b
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.left)
	if n <= 0 {
		d.fail("it has no number where one is expected")
		return 0
	}
	d.left = d.left[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.left)
	if n <= 0 {
		d.fail("it has no number where one is expected")
		return 0
	}
	d.left = d.left[n:]
	return v
}

// bytes reads bytes behind their length.
func (d *decoder) bytes() []byte {
	n := d.uvarint()
	if n > uint64(len(d.left)) {
		d.fail("it is cut off")
		return nil
	}
	b := d.left[:n]
	d.left = d.left[n:]
	return b
}

// texts reads as many texts as there are places for them.
func (d *decoder) texts(into ...*string) {
	for _, s := range into {
		b := d.bytes()
		text, isKnown := d.known[string(b)]
		if !isKnown {
			text = string(b)
			d.known[text] = text
		}
		*s = text
	}
}

// duration reads a duration that is not negative.
func (d *decoder) duration() time.Duration {
	v := d.varint()
	if v < 0 {
		d.fail("it has the time %v", time.Duration(v))
	}
	return max(time.Duration(v), 0)
}

func (d *decoder) time() time.Time {
	seconds, nanoseconds := d.varint(), d.uvarint()
	if seconds < -maxSeconds || seconds > maxSeconds || nanoseconds >= uint64(time.Second) {
		d.fail("it has the time %d.%09d", seconds, nanoseconds)
		return time.Time{}
	}
	return time.Unix(seconds, int64(nanoseconds)).UTC()
}

// maxSeconds is the year 9999 and a little more, in seconds since 1970.
const maxSeconds = 1 << 38

func (d *decoder) record() (r hop.Record) {
	flags := d.byte()
	r.Open, r.Ready, r.Removed, r.Refused = flags&isOpen != 0, flags&isReady != 0, flags&isRemoved != 0, hop.Hop(d.byte())
	d.texts((*string)(&r.UID), &r.Verb, &r.Group, &r.Resource, &r.Subresource, &r.Namespace, &r.Name, &r.User, (*string)(&r.CauseUID),
		&r.Process, &r.Error)
	r.Rev, r.CauseRev, r.Code = d.varint(), d.varint(), int(d.varint())
	r.Start = d.time()
	for h := hop.Hop(d.byte()); h != 0; h = hop.Hop(d.byte()) {
		if h > hop.Network {
			d.fail("it has times at hop %d", h)
			return r
		}
		r.Took[h], r.Wait[h] = d.duration(), d.duration()
	}
	r.Steps = d.steps()
	if flags&hasOrigin != 0 {
		r.Origin = &hop.Origin{}
		if d.texts(&r.Origin.Agent, &r.Origin.AuditID, &r.Origin.Session, &r.Origin.Command, &r.Origin.TraceParent); flags&hasBegan != 0 {
			r.Origin.Began = d.time()
		}
	}
	if r.Verb == "" || r.Start.IsZero() || r.Refused > hop.Network {
		d.fail("it has no verb, no start, or was refused at hop %d", r.Refused)
	}
	return r
}

func (d *decoder) steps() []hop.Step {
	n := d.uvarint()
	if n > hop.MaxSteps {
		d.fail("it has %d steps", n)
	}
	if n == 0 || d.err != nil {
		return nil
	}
	out := make([]hop.Step, n)
	for i := range out {
		s := &out[i]
		s.Hop, s.Failed = hop.Hop(d.byte()), d.byte() != 0
		d.texts(&s.Name, &s.Detail)
		if s.After, s.Took, s.Wait = time.Duration(d.varint()), d.duration(), d.duration(); s.Hop > hop.Network {
			d.fail("it has a step at hop %d", s.Hop)
		}
	}
	return out
}
