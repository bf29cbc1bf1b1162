package pod

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"proa.dev/node/checkpoint"
)

const (
	// maxDeaths is how many times the agent dies while it works on one Pod alone until the Pod is set aside.
	maxDeaths = 3
	// deathWindow is how long a death counts.
	deathWindow = 10 * time.Minute
	// trialTime is how long the work on a suspect keeps other work waiting at most.
	trialTime = time.Minute
)

// Suspects finds out which Pod kills the agent. A file notes each Pod on which the agent works, so that the next agent knows which ones
// were in work when this one died. These are suspects: work on a suspect is done while there is no other work, so that a death is the
// fault of that Pod, and no Pod can be blamed for another one. A Pod on which the agent has died maxDeaths times is set aside until its
// spec changes, or until its file is removed. A nil *Suspects suspects nobody.
type Suspects struct {
	working, suspected string // folders with a file for each Pod
	log                *slog.Logger

	mu      sync.Mutex // guards what follows
	all     map[types.UID]*suspect
	active  map[types.UID]int // the work on each Pod
	trial   types.UID         // the suspect that is worked on alone; empty for none
	changed chan struct{}     // closed when active or trial changes
}

// suspect is what is stored of a suspect.
type suspect struct {
	// Deaths are the times at which the agent has died while it worked on this Pod alone.
	Deaths []time.Time `json:"deaths"`
	// Seen is when the agent last died while it worked on the Pod, perhaps beside others.
	Seen time.Time `json:"seen"`
	// Generation is that of the spec with which the Pod was set aside; 0 if that is not known yet.
	Generation int64 `json:"generation,omitempty"`
}

// OpenSuspects reads which Pods the last agent worked on when it died, and stores that of this one in the folder of a node.
func OpenSuspects(nodeDir string, now time.Time, log *slog.Logger) (*Suspects, error) {
	s := &Suspects{working: filepath.Join(nodeDir, "working"), suspected: filepath.Join(nodeDir, "suspects"), log: log,
		all: map[types.UID]*suspect{}, active: map[types.UID]int{}, changed: make(chan struct{})}
	for _, dir := range []string{s.working, s.suspected} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	known, err := os.ReadDir(s.suspected)
	if err != nil {
		return nil, err
	}
	for _, e := range known {
		x := &suspect{}
		if _, err := checkpoint.Read(filepath.Join(s.suspected, e.Name()), x); err != nil ||
			len(x.Deaths) < maxDeaths && now.Sub(x.Seen) > deathWindow {
			_ = os.Remove(filepath.Join(s.suspected, e.Name())) // nothing is known of it any more
			continue
		}
		s.all[types.UID(e.Name())] = x
	}
	return s, s.accuse(now)
}

// accuse makes suspects of the Pods on which the last agent worked when it died. If that was one Pod alone, the death counts.
func (s *Suspects) accuse(now time.Time) error {
	marks, err := os.ReadDir(s.working)
	if err != nil {
		return err
	}
	var died []types.UID
	for _, e := range marks {
		file := filepath.Join(s.working, e.Name())
		boot, err := os.ReadFile(file)
		if err == nil && bytes.Equal(boot, bootID()) { // else the machine went down with it
			died = append(died, types.UID(e.Name()))
		}
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	for _, uid := range died {
		x := s.all[uid]
		if x == nil {
			x = &suspect{}
			s.all[uid] = x
		}
		x.Seen = now
		if len(died) == 1 && len(x.Deaths) < maxDeaths {
			for len(x.Deaths) > 0 && now.Sub(x.Deaths[0]) > deathWindow {
				x.Deaths = x.Deaths[1:]
			}
			x.Deaths = append(x.Deaths, now)
		}
		if err := s.store(uid, x); err != nil {
			return err
		}
		s.log.Warn("the last agent died while it worked on a Pod", "uid", uid, "deaths", len(x.Deaths), "pods", len(died))
	}
	return nil
}

func bootID() []byte {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // without one every mark counts
	return id
}

func (s *Suspects) store(uid types.UID, x *suspect) error {
	return checkpoint.Write(filepath.Join(s.suspected, filepath.Base(string(uid))), x)
}

// SetAside returns why a Pod is not worked on; empty if it is.
func (s *Suspects) SetAside(uid types.UID, generation int64) string {
	if s == nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.all[uid]
	if x == nil || len(x.Deaths) < maxDeaths {
		return ""
	}
	file := filepath.Join(s.suspected, filepath.Base(string(uid)))
	_, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) || x.Generation != 0 && x.Generation != generation {
		delete(s.all, uid)
		_ = os.Remove(file)
		return ""
	}
	if x.Generation == 0 {
		x.Generation = generation
		if err := s.store(uid, x); err != nil {
			s.log.Error("a Pod that is set aside cannot be stored", "uid", uid, "err", err)
		}
	}
	return fmt.Sprintf("the node's agent has died %d times while it worked on this Pod alone, the last time at %s. Change the Pod's spec or make another Pod; to try this one again, remove %s on its node",
		len(x.Deaths), x.Deaths[len(x.Deaths)-1].UTC().Format(time.RFC3339), file)
}

// Forget forgets a Pod that is gone.
func (s *Suspects) Forget(uid types.UID) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[uid] != nil {
		delete(s.all, uid)
		_ = os.Remove(filepath.Join(s.suspected, filepath.Base(string(uid))))
	}
}

// begin notes that the agent works on a Pod, until done is called. Work on a suspect waits for other work to end, and others for that on
// a suspect, but not for longer than trialTime each.
func (s *Suspects) begin(ctx context.Context, uid types.UID) (done func()) {
	if s == nil {
		return func() {}
	}
	timeout := time.NewTimer(trialTime)
	defer timeout.Stop()
	s.mu.Lock()
	for patient := true; patient && !s.mayBegin(uid); {
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-timeout.C:
			patient = false
		case <-ctx.Done():
			return func() {}
		}
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	alone := s.trial == "" && len(s.active) == 0 || s.trial == uid
	if s.all[uid] != nil && alone {
		s.trial = uid
	}
	if s.active[uid]++; s.active[uid] == 1 {
		if err := os.WriteFile(filepath.Join(s.working, filepath.Base(string(uid))), bootID(), 0o600); err != nil {
			s.log.Error("the work on a Pod cannot be noted", "uid", uid, "err", err)
		}
	}
	return func() { s.end(uid) }
}

// mayBegin tells whether work on a Pod may begin: that on a suspect when there is no other, that on others when there is none on a
// suspect. The caller holds mu.
func (s *Suspects) mayBegin(uid types.UID) bool {
	if s.trial != "" {
		return s.trial == uid
	}
	_, alone := s.active[uid]
	return s.all[uid] == nil || len(s.active) == 0 || alone && len(s.active) == 1
}

func (s *Suspects) end(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active[uid]--; s.active[uid] > 0 {
		return
	}
	delete(s.active, uid)
	_ = os.Remove(filepath.Join(s.working, filepath.Base(string(uid))))
	if s.trial == uid {
		s.trial = ""
	}
	close(s.changed)
	s.changed = make(chan struct{})
}
