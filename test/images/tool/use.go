package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// size reads a number of bytes the way resource limits are written.
func size(text string) (int64, error) {
	units := []struct {
		suffix string
		factor int64
	}{{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"", 1}}
	for _, u := range units {
		digits, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 0 || n > 1<<40/u.factor {
			break
		}
		return n * u.factor, nil
	}
	return 0, fmt.Errorf("%q is not a number of bytes up to 1Ti, like 64Mi", text)
}

const page = 4096

// alloc takes memory and touches all of it, so that it counts.
func alloc(ctx context.Context, out io.Writer, args []string) error {
	f := flags("alloc")
	mem := f.String("mem", "64Mi", "how much memory to take")
	step := f.String("step", "1Mi", "how much at a time")
	every := f.Duration("every", 0, "how long to wait between steps")
	done := f.Bool("done", false, "end when all is taken, instead of keeping it")
	if err := f.Parse(args); err != nil {
		return err
	}
	all, err := size(*mem)
	if err != nil {
		return err
	}
	piece, err := size(*step)
	if err != nil {
		return err
	}
	var kept [][]byte
	for taken := int64(0); taken < all && ctx.Err() == nil; {
		part := make([]byte, min(max(piece, page), all-taken))
		for i := 0; i < len(part); i += page {
			part[i] = 1
		}
		kept = append(kept, part)
		taken += int64(len(part))
		fmt.Fprintf(out, "taken %d\n", taken)
		if *every > 0 && !wait(ctx, *every) {
			return nil
		}
	}
	if !*done {
		<-ctx.Done()
	}
	if len(kept) > 0 {
		kept[0][0] = 2 // all of it is in use until here
	}
	return nil
}

// spin uses processor time.
func spin(ctx context.Context, _ io.Writer, args []string) error {
	f := flags("spin")
	cpu := f.Float64("cpu", 1, "how many processors to use; a part of one is used in turns of 100 ms")
	during := f.Duration("for", 0, "for how long; 0 is until the end")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *cpu <= 0 || *cpu > 64 {
		return errors.New("-cpu must be above 0 and at most 64")
	}
	if *during > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *during)
		defer cancel()
	}
	var all sync.WaitGroup
	for left := *cpu; left > 0; left-- {
		busy := time.Duration(min(left, 1) * float64(100*time.Millisecond))
		all.Go(func() {
			for ctx.Err() == nil {
				for start := time.Now(); time.Since(start) < busy; {
				}
				if rest := 100*time.Millisecond - busy; rest > 0 {
					wait(ctx, rest)
				}
			}
		})
	}
	all.Wait()
	return nil
}

// fill uses disk space with bytes that do not compress.
func fill(ctx context.Context, out io.Writer, args []string) error {
	f := flags("fill")
	path := f.String("path", "/data", "the folder to write to")
	much := f.String("size", "10Mi", "how much to write")
	files := f.Int("files", 1, "into how many files; many use up inodes")
	every := f.Duration("every", 0, "how long to wait between megabytes, or between files")
	done := f.Bool("done", false, "end when all is written, instead of staying")
	if err := f.Parse(args); err != nil {
		return err
	}
	all, err := size(*much)
	if err != nil {
		return err
	}
	if *files < 1 || *files > 1e7 {
		return errors.New("-files must be between 1 and 10000000")
	}
	for i := range *files {
		if err := fillFile(ctx, filepath.Join(*path, fmt.Sprintf("fill-%d", i)), all/int64(*files), *every); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "written %d\n", all)
	if !*done {
		<-ctx.Done()
	}
	return nil
}

func fillFile(ctx context.Context, name string, left int64, every time.Duration) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	noise := rand.NewChaCha8([32]byte{})
	for {
		n, err := io.CopyN(file, noise, min(left, 1<<20))
		if err != nil {
			return errors.Join(err, file.Close())
		}
		left -= n
		if (every > 0 && !wait(ctx, every)) || left == 0 || ctx.Err() != nil {
			return file.Close()
		}
	}
}

// fork starts processes, each of which waits.
func fork(ctx context.Context, out io.Writer, args []string) error {
	f := flags("fork")
	n := f.Int("count", 10, "how many processes to start")
	if err := f.Parse(args); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var started []*exec.Cmd
	for range *n {
		cmd := exec.CommandContext(ctx, self, "sleep")
		if err := cmd.Start(); err != nil {
			fmt.Fprintf(out, "process %d: %v\n", len(started)+1, err)
			break
		}
		started = append(started, cmd)
	}
	fmt.Fprintf(out, "started %d\n", len(started))
	<-ctx.Done()
	for _, cmd := range started {
		_ = cmd.Wait() // it was killed, by us or by the end of the container
	}
	return nil
}

// logLines writes numbered lines, for tests of logs.
func logLines(ctx context.Context, out io.Writer, args []string) error {
	f := flags("log")
	lines := f.Int("lines", 10, "how many lines; 0 is without end")
	every := f.Duration("every", 0, "how long to wait between lines")
	width := f.Int("width", 0, "fill lines up to this many bytes")
	odd := f.Bool("both", false, "write every second line to stderr")
	done := f.Bool("done", false, "end after the last line, instead of staying")
	if err := f.Parse(args); err != nil {
		return err
	}
	for i := 1; (*lines == 0 || i <= *lines) && ctx.Err() == nil; i++ {
		line := fmt.Sprintf("line %d ", i)
		line += strings.Repeat("x", max(0, *width-len(line)))
		to := out
		if *odd && i%2 == 0 {
			to = os.Stderr
		}
		fmt.Fprintln(to, strings.TrimSpace(line))
		if *every > 0 {
			wait(ctx, *every)
		}
	}
	if !*done {
		<-ctx.Done()
	}
	return nil
}

func cat(_ context.Context, out io.Writer, args []string) error {
	for _, name := range args {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, file)
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
	return nil
}
