package recordfile

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
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
		Origin: &hop.Origin{Agent: "kubectl", AuditID: "a", Session: "s", Command: "kubectl apply"}, Process: "server", Open: true,
		Error: "no", Refused: hop.Mutate, Ready: true,
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

func TestDamagedFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"empty":          "",
		"another header": "proa hop records 99\n",
		"no JSON":        header + "\nx\n",
		"no verb":        header + "\n{}\n",
		"a hop too many": header + `
{"verb":"x","start":"2026-11-17T12:00:00Z","hops":{"13":[1,1]}}`,
		"a negative time": header + `
{"verb":"x","start":"2026-11-17T12:00:00Z","hops":{"3":[-1,1]}}`,
		"a long line": header + "\n" + strings.Repeat(" ", maxLine+1) + "\n",
		"too large":   header + "\n" + strings.Repeat(" \n", maxBytes),
		"cut":         header + "\n" + `{"verb":"x","sta`,
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := Load(file); err == nil || got != nil {
			t.Errorf("%s: got %d records, %v", name, len(got), err)
		}
	}
	if _, err := Load(dir); err == nil {
		t.Error("a folder was read")
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(header + "\n"))
	f.Add([]byte(header + "\n" + `{"verb":"create","start":"2026-11-17T12:00:00Z","hops":{"3":[1,1]},"steps":[{"Hop":3}]}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		records, err := Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		file := filepath.Join(t.TempDir(), "records")
		if err := Save(file, records); err != nil {
			t.Skip("a time that JSON cannot write")
		}
		again, err := Load(file)
		if err != nil || len(again) != len(records) {
			t.Errorf("%d records were read, and %d of them again: %v", len(records), len(again), err)
		}
	})
}
