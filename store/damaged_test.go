package store

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/datadir"

	"proa.dev/store/singlemember/memberlog"
)

// TestDamagedFiles checks that the start fails with a helpful message if files of the store are damaged.
func TestDamagedFiles(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(dir string) error
		want   string
	}{
		"a database that is cut off": {func(dir string) error { return os.Truncate(datadir.ToBackendFileName(dir), 8192) },
			"is cut off: it has 8192 bytes of"},
		"a database of garbage": {func(dir string) error {
			return os.WriteFile(datadir.ToBackendFileName(dir), []byte(strings.Repeat("garbage ", 8192)), 0o600)
		}, "it is no database of etcd"},
		"no log": {func(dir string) error { return os.RemoveAll(datadir.ToWALDir(dir)) },
			"is missing, and there were writes up to its entry"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{Dir: filepath.Join(t.TempDir(), "etcd"), Log: slog.New(slog.DiscardHandler)}
			db, err := Embed(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			if f, err := Check(cfg.Dir); err != nil || len(f.Damage) > 0 {
				t.Fatalf("before: %v, %v", f, err)
			}
			if err := c.damage(cfg.Dir); err != nil {
				t.Fatal(err)
			}
			_, err = Embed(t.Context(), cfg)
			if !errors.Is(err, memberlog.ErrDamaged) || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), "proa store check") {
				t.Errorf("error %v", err)
			}
			if f, err := Check(cfg.Dir); err != nil || !strings.Contains(strings.Join(f.Damage, "\n"), c.want) {
				t.Errorf("found %v, %v", f, err)
			}
			if _, rev, err := Repair(t.Context(), cfg.Dir); err != nil || rev != 1 {
				t.Errorf("repaired at revision %d, %v", rev, err)
			}
			if db, err = Embed(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			if _, err := Check(cfg.Dir); !errors.Is(err, errInUse) {
				t.Errorf("while it is in use: %v", err)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestEmptyDatabase checks that an empty database is rebuilt from a complete log.
func TestEmptyDatabase(t *testing.T) {
	cfg := Config{Dir: filepath.Join(t.TempDir(), "etcd"), Log: slog.New(slog.DiscardHandler)}
	for range 2 {
		db, err := Embed(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(datadir.ToBackendFileName(cfg.Dir), 0); err != nil {
			t.Fatal(err)
		}
	}
}
