package recordfile

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"proa.dev/hop"
)

// fullRecord returns a record with everything that a file keeps.
func fullRecord(n int) hop.Record {
	r := hop.Record{
		UID: "u", Rev: int64(n), Verb: "create", Group: "apps", Resource: "deployments", Subresource: "status", Namespace: "default",
		Name: "web", User: "alice", Code: 201, Start: time.Unix(1000, int64(n)).UTC(), CauseUID: "c", CauseRev: 3,
		Origin: &hop.Origin{Agent: "kubectl", AuditID: "a", Session: "s", Command: "kubectl apply", Began: time.Unix(999, 0).UTC(),
			TraceParent: "00-1-2-01"}, Process: "server", Open: true,
		Error: "no", Refused: hop.Mutate, Ready: true, Removed: true,
		Steps: []hop.Step{{Hop: hop.Mutate, Name: "webhook", After: 1, Took: 2, Wait: 1, Detail: "d", Failed: true}},
	}
	r.Took[hop.Mutate], r.Wait[hop.Mutate], r.Took[hop.Commit] = 5, 2, 7
	return r
}

func TestSaveAndLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "records")
	if got, err := Load(file); got != nil || err != nil {
		t.Fatalf("a file that does not exist: %v %v", got, err)
	}
	want := []hop.Record{fullRecord(1), fullRecord(2)}
	given := []hop.Record{fullRecord(1), fullRecord(2)}
	given[1].Wire = &hop.Wire{Request: []byte("a secret")}
	if err := Save(file, given); err != nil {
		t.Fatal(err)
	}
	got, err := Load(file)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v %v\nwant %+v", got, err, want)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has the mode %v %v", info.Mode(), err)
	}
	if data, err := os.ReadFile(file); err != nil || bytes.Contains(data, []byte("c2VjcmV0")) || bytes.Contains(data, []byte("secret")) {
		t.Errorf("the file has bodies: %s %v", data, err)
	}
	if left, err := filepath.Glob(file + ".*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestOnlyTheNewestAreKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "records")
	var all []hop.Record
	for i := range MaxRecords + 10 {
		all = append(all, fullRecord(i))
	}
	if err := Save(file, all); err != nil {
		t.Fatal(err)
	}
	got, err := Load(file)
	if err != nil || len(got) != MaxRecords || got[len(got)-1].Rev != MaxRecords+9 {
		t.Errorf("got %d records, %v", len(got), err)
	}
}

// sealed returns a file with encoded records, whatever they are, and the right checksum.
func sealed(records ...[]byte) []byte {
	out := []byte(header)
	for _, r := range records {
		out = append(binary.AppendUvarint(out, uint64(len(r))), r...)
	}
	return append(out, checksum(out)...)
}

// with returns an encoded record that was changed.
func with(change func(*hop.Record)) []byte {
	r := fullRecord(1)
	change(&r)
	return appendRecord(nil, &r)
}

// TestDamagedFiles checks that a file with anything wrong in it has no records and says what is wrong, without a panic and without memory
// for more than it has.
func TestDamagedFiles(t *testing.T) {
	good := encode([]hop.Record{fullRecord(1), fullRecord(2)})
	flipped := bytes.Clone(good)
	flipped[len(header)+20] ^= 1
	whole, endless := with(func(*hop.Record) {}), binary.AppendUvarint([]byte(header), 1<<62)
	dir := t.TempDir()
	for name, tt := range map[string]struct {
		data []byte
		want string
	}{
		"empty":             {nil, "does not begin"},
		"only the header":   {[]byte(header), "does not begin"},
		"another version":   {[]byte("proa hop records 1\n" + `{"verb":"create","start":"2026-11-17T12:00:00Z"}` + "\n"), "of this version"},
		"cut":               {good[:len(good)-20], "checksum"},
		"a bit is wrong":    {flipped, "checksum"},
		"something behind":  {append(bytes.Clone(good), 0), "checksum"},
		"too large":         {append([]byte(header), make([]byte, maxBytes)...), "more than"},
		"a length too long": {append(bytes.Clone(endless), checksum(endless)...), "record 1: it is cut off"},
		"a record cut off":  {sealed(whole[:len(whole)-1]), "record 1: it has no number"},
		"a record too long": {sealed(append(bytes.Clone(whole), 0)), "something after its end"},
		"no verb":           {sealed(whole, with(func(r *hop.Record) { r.Verb = "" })), "record 2: it has no verb"},
		"no start":          {sealed(with(func(r *hop.Record) { r.Start = time.Time{} })), "no start"},
		"a hop too many":    {sealed(with(func(r *hop.Record) { r.Refused = 13 })), "hop 13"},
		"a negative time":   {sealed(with(func(r *hop.Record) { r.Took[hop.Node] = -1 })), "the time -1ns"},
		"a negative wait":   {sealed(with(func(r *hop.Record) { r.Steps[0].Wait = -1 })), "the time -1ns"},
		"a step nowhere":    {sealed(with(func(r *hop.Record) { r.Steps[0].Hop = 99 })), "hop 99"},
		"too many steps":    {sealed(with(func(r *hop.Record) { r.Steps = make([]hop.Step, hop.MaxSteps+1) })), "65 steps"},
		"the end of time":   {sealed(with(func(r *hop.Record) { r.Start = time.Unix(1<<50, 0) })), "it has the time"},
		"too many records":  {sealed(slices.Repeat([][]byte{whole}, MaxRecords+1)...), "more than 8000 records"},
		"a number too long": {sealed([]byte{0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}), "no number"},
		"a text too long":   {sealed([]byte{0, 0, 0xff, 0xff, 0xff, 0xff, 0x7f}), "cut off"},
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, tt.data, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := Load(file); err == nil || got != nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %d records, %v, want %s", name, len(got), err, tt.want)
		}
	}
	if _, err := Load(dir); err == nil {
		t.Error("a folder was read")
	}
}

// TestKeeper checks that records are there after a restart, that work which this machine has left open has ended, that nothing is written
// when nothing was recorded, and that a file which cannot be read is ignored with a line in the log.
func TestKeeper(t *testing.T) {
	var log bytes.Buffer
	keeper := func(file string) *Keeper {
		r := hop.NewRecorder(100)
		r.Process = "server"
		return &Keeper{File: file, Recorder: r, Log: slog.New(slog.NewTextHandler(&log, nil))}
	}
	file := filepath.Join(t.TempDir(), Name)
	k := keeper(file)
	k.Restore()
	if k.Save(); fileExists(t, file) {
		t.Error("a file without records was written")
	}
	k.Recorder.Add(hop.Record{UID: "l", Rev: 1, Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Start: time.Now()})
	if k.Save(); fileExists(t, file) {
		t.Error("a file was written for a Lease")
	}
	k.Recorder.Add(fullRecord(1))
	open := fullRecord(2)
	open.Verb, open.Refused = hop.Pull, 0
	k.Recorder.Update(open)
	if k.Save(); !fileExists(t, file) || log.Len() > 0 {
		t.Fatalf("no file was written: %s", log.String())
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if k.Save(); fileExists(t, file) {
		t.Error("a file was written though nothing was recorded")
	}
	open.Took[hop.Node]++
	k.Recorder.Update(open)
	k.Save()
	next := keeper(file)
	next.Restore()
	got := next.Recorder.Select(func(*hop.Record) bool { return true })
	if len(got) != 2 || got[0].Open || got[1].Open || got[1].Took[hop.Node] != 1 {
		t.Errorf("after a restart: %+v", got)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if next.Save(); fileExists(t, file) {
		t.Error("what was read is written again")
	}
	if err := os.WriteFile(file, []byte("proa hop records 1\n{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := keeper(file)
	if bad.Restore(); bad.Recorder.Len() != 0 || !strings.Contains(log.String(), "cannot be read") {
		t.Errorf("%d records of a file of another version; the log is %s", bad.Recorder.Len(), log.String())
	}
}

func fileExists(t *testing.T, file string) bool {
	t.Helper()
	_, err := os.Stat(file)
	return err == nil
}

// FuzzDecode checks that no file makes a server fail, and that what was read is the same when it is written and read again. The fuzzer does
// not have to find checksums.
func FuzzDecode(f *testing.F) {
	f.Add(with(func(*hop.Record) {}), []byte{})
	f.Add(with(func(r *hop.Record) { r.Origin, r.Steps = nil, nil }), with(func(r *hop.Record) { r.Origin.Began = time.Unix(5, 5) }))
	f.Add([]byte{0xff, 0xff}, []byte("x"))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		_, _ = decode(first)
		records, err := decode(sealed(first, second))
		if err != nil {
			return
		}
		again, err := decode(encode(records))
		if err != nil || !reflect.DeepEqual(again, records) {
			t.Errorf("%+v were read, and %+v of them again: %v", records, again, err)
		}
	})
}
