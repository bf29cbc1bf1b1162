package run

import (
	"context"
	"time"

	"proa.dev/run/filewatch"
)

// reloadEvery is the time between checks of files that may change while the server runs.
const reloadEvery = 15 * time.Second

// reload applies changes of configuration files until ctx ends. A file with a mistake changes nothing, and the error is
// logged until it is corrected.
func (s *Server) reload(ctx context.Context) {
	files := []*filewatch.File{
		filewatch.New(s.encryption.KeyFile(), func() error { return s.reloadEncryption(ctx) }),
		filewatch.New(s.Identity.Config, s.users.ReloadIssuers),
		filewatch.New(s.Permission.Config, func() error {
			steps, err := s.ReadAuthorizers()
			if err != nil {
				return err
			}
			return s.authorizers.Set(steps)
		}),
	}
	// The process may have ended before all Secrets were encrypted with the newest key.
	if err := s.migrateSecrets(ctx); err != nil && ctx.Err() == nil {
		s.log.ErrorContext(ctx, "cannot encrypt the Secrets with the newest key", "err", err)
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
			if !f.Changed() {
				continue
			}
			if err := f.Apply(); err != nil {
				s.log.ErrorContext(ctx, "a changed file cannot be used; the former content stays in effect", "file", f.Path, "err", err)
				f.Text = nil // the next check retries: the store may have been unreachable
				continue
			}
			s.log.InfoContext(ctx, "a changed file is in effect", "file", f.Path)
		}
	}
}
