package upstream

import (
	"context"
	"fmt"
	"time"
)

// Restart ends the processes of a system and starts them again in the same folder with the same flags. Ready is then
// the time from the first process's start to /readyz answering 200.
func (s *System) Restart(ctx context.Context) error {
	s.Halt()
	before := s.procs
	s.procs, s.Started = nil, time.Now()
	for _, p := range before {
		if err := s.run(p.cmd.Path, p.cmd.Args[1:]...); err != nil {
			return err
		}
	}
	if err := s.waitReady(ctx); err != nil {
		return fmt.Errorf("%w\n%s", err, s.logs())
	}
	return nil
}
