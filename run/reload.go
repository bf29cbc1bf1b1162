package run

import (
	"bytes"
	"context"
	"os"
	"time"
)

// reloadEvery is how often files are looked at that may change while the server runs.
const reloadEvery = 15 * time.Second

// reload takes over files that change. One that is wrong changes nothing, and the log says so until it is right.
func (s *Server) reload(ctx context.Context) {
	keys := s.Encryption
	if keys == "" {
		keys = sealFile(s.DataDir)
	}
	files := []*watched{
		newWatched(keys, func() error { return s.reseal(ctx) }),
		newWatched(s.Identity.Config, s.trustIssuers),
		newWatched(s.Permission.Config, func() error {
			steps, err := s.readAuthorizers()
			if err != nil {
				return err
			}
			return s.deciders.set(steps)
		}),
	}
	if s.Encryption == "" {
		// The process may have ended before all was written again with the newest key.
		if err := s.migrateSecrets(ctx); err != nil && ctx.Err() == nil {
			s.log.ErrorContext(ctx, "cannot have the Secrets written again with the newest key", "err", err)
		}
	}
	tick := time.NewTicker(reloadEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, f := range files {
			if !f.changed() {
				continue
			}
			if err := f.apply(); err != nil {
				s.log.ErrorContext(ctx, "a changed file is not taken over; the former one counts", "file", f.path, "err", err)
				f.text = nil // it is tried again, since the store may have been away
				continue
			}
			s.log.InfoContext(ctx, "took over a changed file", "file", f.path)
		}
	}
}

// watched is a file whose content counts.
type watched struct {
	path  string
	text  []byte
	apply func() error
}

func newWatched(path string, apply func() error) *watched {
	w := &watched{path: path, apply: apply}
	w.changed()
	return w
}

// changed says whether the file is another one than when it was last looked at. One that cannot be read is no other.
func (w *watched) changed() bool {
	if w.path == "" {
		return false
	}
	text, err := os.ReadFile(w.path)
	if err != nil || bytes.Equal(text, w.text) {
		return false
	}
	w.text = text
	return true
}
