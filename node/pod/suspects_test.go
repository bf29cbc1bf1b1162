package pod

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// TestPodThatKillsAgentIsSetAside checks that the Pod on which an agent dies three times is set aside, and no Pod on which it worked at
// the same time; and that the Pod comes back when its spec changes, or when an administrator removes its file.
func TestPodThatKillsAgentIsSetAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		start := func() *Suspects {
			t.Helper()
			s, err := OpenSuspects(dir, time.Now(), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		aside := func(s *Suspects, uid types.UID) bool { return s.SetAside(uid, 1) != "" }

		// The first agent dies while it works on three Pods.
		s := start()
		for _, uid := range []types.UID{"good", "bad", "other"} {
			s.begin(t.Context(), uid)
		}
		// The next ones work on each of them alone, and die with one; a new Pod waits meanwhile.
		for range maxDeaths {
			s = start()
			if aside(s, "bad") || aside(s, "good") {
				t.Fatal("a Pod was set aside too early")
			}
			s.begin(t.Context(), "good")()
			s.begin(t.Context(), "bad")
			began := make(chan bool, 1)
			go func() {
				s.begin(t.Context(), "new")
				began <- true
			}()
			synctest.Wait()
			if len(began) > 0 {
				t.Fatal("work on another Pod has begun beside that on a suspect")
			}
		}
		s = start()
		if !aside(s, "bad") || aside(s, "good") || aside(s, "other") || aside(s, "new") {
			t.Fatalf("bad %t, good %t, other %t, new %t", aside(s, "bad"), aside(s, "good"), aside(s, "other"), aside(s, "new"))
		}
		if why := s.SetAside("bad", 1); !strings.Contains(why, "has died 3 times") ||
			!strings.Contains(why, filepath.Join(dir, "suspects", "bad")) {
			t.Error(why)
		}
		if s = start(); !aside(s, "bad") {
			t.Error("it is forgotten after a restart")
		}
		if s.SetAside("bad", 2) != "" || aside(start(), "bad") {
			t.Error("it stays set aside with another spec")
		}
		time.Sleep(time.Hour) // the waiting work of agents that died ends with the test
	})
}

// TestSuspectsAreForgotten checks that work that ends makes no suspect, that a suspect with which nothing happens is none any more after a
// while, and that the removal of the file ends the exile.
func TestSuspectsAreForgotten(t *testing.T) {
	dir := t.TempDir()
	log := slog.New(slog.DiscardHandler)
	now := time.Now()
	open := func() *Suspects {
		t.Helper()
		s, err := OpenSuspects(dir, now, log)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	s.begin(t.Context(), "ended")()
	s.begin(t.Context(), "a")
	if s = open(); len(s.all) != 1 || s.all["a"] == nil {
		t.Errorf("suspects: %v", s.all)
	}
	now = now.Add(deathWindow + time.Second)
	if s = open(); len(s.all) != 0 {
		t.Errorf("suspects after a while: %v", s.all)
	}
	for range maxDeaths {
		s.begin(t.Context(), "a")
		s = open()
	}
	if s.SetAside("a", 1) == "" {
		t.Fatal("it is not set aside")
	}
	if err := os.Remove(filepath.Join(dir, "suspects", "a")); err != nil {
		t.Fatal(err)
	}
	if s.SetAside("a", 1) != "" {
		t.Error("it is set aside although its file was removed")
	}
	var none *Suspects
	none.begin(t.Context(), "x")()
	none.Forget("x")
	if none.SetAside("x", 1) != "" {
		t.Error("nobody suspects anybody")
	}
}
