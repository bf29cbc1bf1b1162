package clusterrecord

import (
	"reflect"
	"strings"
	"sync"
	"testing"

	"proa.dev/kv"
	"proa.dev/run/datafolder"
	"proa.dev/store/memory"
)

// record returns the record of a server with some keys of Secrets and a Service CIDR.
func record(cidr string, keys ...string) *Record {
	return &Record{Version: datafolder.Version{Format: 1, Build: "v1"}, Keys: map[string][]string{"secrets-key": keys},
		Settings: map[string]string{"service-cidr": cidr}}
}

// TestServersMustAgree checks which servers may join a cluster, what the refusal of others says, and that a refused server
// changes nothing.
func TestServersMustAgree(t *testing.T) {
	newer := record("10.0.0.0/16", "a")
	newer.Version = datafolder.Version{Format: 2, Build: "v2"}
	other := record("10.0.0.0/16", "a")
	other.Build, other.Settings["new-setting"], other.Keys["new-key"] = "v0", "x", []string{"y"}
	for _, c := range []struct {
		name     string
		has, own *Record
		changes  []string
		refusal  string
		keys     string // of the record afterwards
	}{
		{"the first server", nil, record("10.0.0.0/16", "a"), nil, "", "a"},
		{"the same", record("10.0.0.0/16", "a"), record("10.0.0.0/16", "a"), nil, "", "a"},
		{"another Service CIDR", record("10.0.0.0/16", "a"), record("10.1.0.0/16", "a"), nil,
			"service-cidr: the cluster has 10.0.0.0/16, this server has 10.1.0.0/16", "a"},
		{"another key", record("10.0.0.0/16", "a"), record("10.0.0.0/16", "b"), nil, "secrets-key: the cluster has a, this server has b", "a"},
		{"no key", record("10.0.0.0/16", "a"), record("10.0.0.0/16"), nil, "secrets-key: the cluster has a, this server has none", "a"},
		{"a key where Secrets are not encrypted", record("10.0.0.0/16"), record("10.0.0.0/16", "a"), nil,
			"secrets-key: the cluster has none, this server has a", ""},
		{"a key is added", record("10.0.0.0/16", "a"), record("10.0.0.0/16", "a", "b"), nil, "", "a b"},
		{"a server that has no new key yet", record("10.0.0.0/16", "a", "b"), record("10.0.0.0/16", "a"), nil, "", "a b"},
		{"the new key is used", record("10.0.0.0/16", "a", "b"), record("10.0.0.0/16", "b", "a"), nil, "", "b a"},
		{"a new key that others do not have", record("10.0.0.0/16", "a"), record("10.0.0.0/16", "b", "a"), nil,
			"the cluster has a, this server has b, a", "a"},
		{"a server without the key in use", record("10.0.0.0/16", "b", "a"), record("10.0.0.0/16", "a"), nil,
			"the cluster has b, a, this server has a", "b a"},
		{"a change on purpose", record("10.0.0.0/16", "a"), record("10.1.0.0/16", "b"), []string{"service-cidr", "secrets-key"}, "", "b"},
		{"a newer program", newer, record("10.0.0.0/16", "a"), nil,
			"was written by a newer proa (build v2, data format 2) than this one (build v1, data format 1)", "a"},
		{"a program with more settings and keys", other, record("10.0.0.0/16", "a"), nil, "", "a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := memory.New(memory.Config{})
			t.Cleanup(func() { _ = store.Close() })
			if c.has != nil {
				if err := Join(t.Context(), store, c.has, nil); err != nil {
					t.Fatal(err)
				}
			}
			before, rev, _ := Read(t.Context(), store)
			err := Join(t.Context(), store, c.own, c.changes)
			after, _, readErr := Read(t.Context(), store)
			if readErr != nil || strings.Join(after.Keys["secrets-key"], " ") != c.keys {
				t.Errorf("the record is now %+v, %v", after, readErr)
			}
			if c.refusal == "" {
				if err != nil || after.Settings["service-cidr"] != c.own.Settings["service-cidr"] ||
					after.Settings["new-setting"] != before.Settings["new-setting"] {
					t.Errorf("%+v, %v", after, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.refusal) {
				t.Errorf("got error %v", err)
			}
			if _, now, _ := Read(t.Context(), store); now != rev || !reflect.DeepEqual(before, after) {
				t.Error("a refused server has changed the record")
			}
		})
	}
}

// TestOneOfTwoFirstServersWins checks that of servers with keys of their own that begin a cluster together one is accepted.
func TestOneOfTwoFirstServersWins(t *testing.T) {
	store := memory.New(memory.Config{})
	t.Cleanup(func() { _ = store.Close() })
	errs := make([]error, 4)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = Join(t.Context(), store, record("10.0.0.0/16", string(rune('a'+i))), nil) })
	}
	wg.Wait()
	accepted := 0
	for _, err := range errs {
		if err == nil {
			accepted++
		}
	}
	if accepted != 1 {
		t.Errorf("%d servers were accepted: %v", accepted, errs)
	}
}

// TestUnreadableRecordIsNotReplaced checks that a record that cannot be read is an error that says what to do.
func TestUnreadableRecordIsNotReplaced(t *testing.T) {
	for _, value := range []string{"", "{", "{}", `{"format":"x"}`} {
		store := memory.New(memory.Config{})
		if _, err := store.Commit(t.Context(), kv.Write{Key: Key, Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
		if err := Join(t.Context(), store, record("10.0.0.0/16", "a"), nil); err == nil || !strings.Contains(err.Error(), Key) {
			t.Errorf("%q: %v", value, err)
		}
		_ = store.Close()
	}
}
