package subprocess

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

func TestLogIsBounded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	writer, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	size := func(name string) int64 {
		info, err := os.Stat(name)
		if err != nil {
			return -1
		}
		return info.Size()
	}
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		ctx, stop := context.WithCancel(t.Context())
		go func() { defer close(done); LimitLog(ctx, file, 100, slog.New(slog.DiscardHandler)) }()
		synctest.Wait()
		for _, step := range []struct{ write, now, before int64 }{{50, 50, -1}, {70, 0, 100}, {10, 10, 100}, {1000, 0, 100}} {
			if _, err := writer.Write(bytes.Repeat([]byte("x"), int(step.write))); err != nil {
				t.Fatal(err)
			}
			time.Sleep(logCheckPeriod)
			synctest.Wait()
			if size(file) != step.now || size(file+".1") != step.before {
				t.Errorf("after %d more bytes the log has %d and %d, want %d and %d", step.write, size(file), size(file+".1"), step.now,
					step.before)
			}
		}
		stop()
		<-done
	})
}
