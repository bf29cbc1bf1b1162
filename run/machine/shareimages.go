package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"proa.dev/internal/wait"
	"proa.dev/node/runtime"
	"proa.dev/run/machine/nodefolder"
	"proa.dev/run/machine/nodeimages"
)

// shareArchives gives a new node the image archives that are kept for the first one.
func shareArchives(from, to string) error {
	if _, err := os.Stat(to); err == nil {
		return nil // it is not new
	}
	files, err := filepath.Glob(filepath.Join(from, "*"))
	if err != nil || len(files) == 0 {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for _, f := range files {
		if err := os.Link(f, filepath.Join(to, filepath.Base(f))); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("share the images of the first node: %w", err)
		}
	}
	return nil
}

// shareImages copies the images that were loaded into the first node to another one, which may be new. It retries until
// that is done.
func (s *Machine) shareImages(ctx context.Context, f nodefolder.Node) {
	for s.Node.Runtime == "" { // images of a runtime that another program runs are not proa's
		err := nodeimages.WaitForRuntime(ctx, s.DataDir)
		if err == nil {
			err = nodeimages.WaitForRuntime(ctx, f.Dir)
		}
		if err == nil {
			_, err = runtime.ShareImages(ctx, nodefolder.RuntimeDir(s.DataDir), nodefolder.RuntimeDir(f.Dir))
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		s.Log().ErrorContext(ctx, "the images of the first node cannot be copied to another node yet", "node", f.Name, "err", err)
		_ = wait.Sleep(ctx, checkInterval) // the next attempt ends with ctx
	}
}
