// Package clusterrecord makes servers that share an etcd agree: a record in the store has the data format, the
// fingerprints of the keys and the settings that all servers of a cluster must have in common, and a server with others
// does not start.
//
// The record is a key of the store and no object of the API, so that only servers and the administrators of etcd can
// write it.
package clusterrecord

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"proa.dev/kv"
	"proa.dev/run/datafolder"
)

// Key is the key of the record in the store.
const Key = "/registry/proa/cluster"

// maxKeys bounds how many fingerprints of former and present keys are kept for each name.
const maxKeys = 32

// Record is what the servers of a cluster have in common.
type Record struct {
	datafolder.Version
	// Keys are the fingerprints of keys and authorities by their name, the one in use first. Those behind it are used to
	// verify or decrypt.
	Keys map[string][]string `json:"keys"`
	// Settings are values of settings by the name of the setting.
	Settings map[string]string `json:"settings"`
}

// Store is the part of the store that holds the record.
type Store interface {
	kv.Reader
	kv.Committer
}

// Read returns the record of the cluster in a store, and its revision, which is zero if there is none.
func Read(ctx context.Context, store Store) (Record, int64, error) {
	p, found, err := store.Get(ctx, Key)
	if err != nil || !found {
		return Record{}, 0, err
	}
	var r Record
	err = json.Unmarshal(p.Value, &r)
	if err == nil && r.Format < 1 {
		err = errors.New("it has no data format")
	}
	if err != nil {
		return Record{}, 0, fmt.Errorf("the key %s of etcd, in which the servers of this cluster record their keys and settings, cannot be read: %w. "+
			"Stop all servers but one with the right keys, delete the key with etcdctl, and restart that server, which writes it again", Key, err)
	}
	return r, p.Rev, nil
}

// Check returns an error if a server with the record own must not use the store of the cluster that has the record r. It
// names what differs with both values. The names in changes are those that the administrator changes on purpose.
func (r *Record) Check(own *Record, changes []string) error {
	if err := own.Accepts(r.Version, "the etcd of this cluster"); err != nil {
		return err
	}
	var differences []string
	for _, name := range slices.Sorted(maps.Keys(r.Keys)) {
		have := r.Keys[name]
		mine, compared := own.Keys[name]
		if compared && !slices.Contains(changes, name) && !agree(have, mine) {
			differences = append(differences, difference(name, strings.Join(have, ", "), strings.Join(mine, ", ")))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Settings)) {
		have := r.Settings[name]
		mine, compared := own.Settings[name]
		if compared && !slices.Contains(changes, name) && have != mine {
			differences = append(differences, difference(name, have, mine))
		}
	}
	if len(differences) == 0 {
		return nil
	}
	return fmt.Errorf("this server does not fit the cluster in this etcd, and has changed nothing there:\n  %s\n"+
		"Servers that share an etcd need the same pki/ (copy it, with keys, from the data folder of a server of the cluster) and the same settings. "+
		"To change the cluster on purpose, give one server --change-cluster with the names above, once", strings.Join(differences, "\n  "))
}

// agree tells whether servers with two lists of keys understand each other: what each of them signs or encrypts, the
// other one verifies or decrypts. So keys can be rotated one server after the other.
func agree(a, b []string) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	return slices.Contains(a, b[0]) && slices.Contains(b, a[0])
}

func difference(name, cluster, server string) string {
	return fmt.Sprintf("%s: the cluster has %s, this server has %s", name, cmp.Or(cluster, "none"), cmp.Or(server, "none"))
}

// merge returns the record after a server with the record own has joined: its values, and former keys behind its own,
// since other servers may still use them. Names that only other servers know stay.
func (r *Record) merge(own *Record, changes []string) *Record {
	next := &Record{Version: own.Version, Keys: maps.Clone(own.Keys), Settings: map[string]string{}}
	maps.Copy(next.Settings, r.Settings)
	maps.Copy(next.Settings, own.Settings)
	for name, have := range r.Keys {
		keys := slices.Clone(own.Keys[name])
		for _, k := range have {
			if !slices.Contains(keys, k) && !slices.Contains(changes, name) {
				keys = append(keys, k)
			}
		}
		next.Keys[name] = keys[:min(len(keys), maxKeys)]
	}
	return next
}

// Join checks the record own of a server against that of the cluster, and records what is new. The first server of a
// cluster writes the record. changes are the names of what the administrator changes on purpose.
func Join(ctx context.Context, store Store, own *Record, changes []string) error {
	for {
		have, rev, err := Read(ctx, store)
		if err != nil {
			return err
		}
		if rev != 0 {
			if err := have.Check(own, changes); err != nil {
				return err
			}
		}
		next := have.merge(own, changes)
		value, err := json.Marshal(next)
		if err != nil {
			return err
		}
		if before, err := json.Marshal(have); err == nil && rev != 0 && string(before) == string(value) {
			return nil
		}
		_, err = store.Commit(ctx, kv.Write{Key: Key, Value: value, Rev: rev, UseReserve: true})
		if _, lost := errors.AsType[*kv.Conflict](err); !lost {
			return err
		}
	}
}
