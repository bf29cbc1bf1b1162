package image

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/hop"
	"proa.dev/node/nodetest"
	"proa.dev/node/podtrace"
	"proa.dev/node/runtime"
	"proa.dev/test/images/oci"
	"proa.dev/test/registry"
)

func TestProgressText(t *testing.T) {
	for _, c := range []struct {
		done, total int64
		want        string
	}{
		{12e6, 40e6, "12 MB of 40 MB: nginx"},
		{0, 999_999, "0 kB of 999 kB: nginx"},
		{999_999, 9_999_999_999, "999 kB of 9999 MB: nginx"},
		{10e9, 25_500_000_000, "10.0 GB of 25.5 GB: nginx"},
	} {
		if got := progressText(c.done, c.total, "nginx"); got != c.want {
			t.Errorf("progressText(%d, %d) = %q, want %q", c.done, c.total, got, c.want)
		}
	}
}

// TestProgressOfLongPullIsBounded checks that the progress of a pull is read every second at first, and that neither a pull of ten minutes
// nor one that many Pods wait for makes too many records.
func TestProgressOfLongPullIsBounded(t *testing.T) {
	if got := progressPause(59*time.Second, 4); got != time.Second {
		t.Errorf("the pause is %v", got)
	}
	for watchers := 1; watchers < 300; watchers++ {
		records := 0
		for age := time.Duration(0); age < 10*time.Minute; age += progressPause(age, watchers) {
			records += watchers
		}
		if records > 1400 {
			t.Errorf("%d watchers: %d records", watchers, records)
		}
	}
}

// fakeProgress has downloaded a megabyte of ten for each second of a pull.
type fakeProgress struct{ reads int }

func (f *fakeProgress) PullProgress(_ context.Context, repository string, since time.Time) (done, total int64, err error) {
	if f.reads++; repository != "docker.io/library/there" {
		return 0, 0, errors.New(repository)
	}
	return min(int64(time.Since(since).Seconds()), 4) * 1e6, 10e6, nil
}

// recordedDetails collects the details of steps that were recorded, each once.
type recordedDetails struct {
	mu      sync.Mutex // guards details
	details []string
}

func (r *recordedDetails) record(rec hop.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range rec.Steps {
		if n := len(r.details); n == 0 || r.details[n-1] != s.Detail {
			r.details = append(r.details, s.Detail)
		}
	}
}

// ensureRecorded pulls an image with a record of it.
func (r *recordedDetails) ensureRecorded(ctx context.Context, m *Images, image string) error {
	p := newPod()
	p.ResourceVersion, p.Spec.ImagePullSecrets = "7", nil
	work := podtrace.New("n", r.record).Begin(p, hop.Pull)
	work.Enter("image of c", image)
	_, err := m.Ensure(ctx, p, &corev1.Container{Name: "c", Image: image}, work)
	work.Done()
	return err
}

func TestProgressOfPullIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, progress, got := newFakeRuntime(), &fakeProgress{}, &recordedDetails{}
		s.pullTime = 7500 * time.Millisecond
		m := newImages(t, s)
		m.Progress, m.Parallel = progress, 5
		m.puller = newPuller(m.Config)
		if err := got.ensureRecorded(t.Context(), m, "there:1"); err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(got.details, ", "); text != "there:1, 1 MB of 10 MB: there:1, 2 MB of 10 MB: there:1, "+
			"3 MB of 10 MB: there:1, 4 MB of 10 MB: there:1, 42 bytes: there:1" {
			t.Error(text)
		}
		if progress.reads != 7 {
			t.Errorf("it was read %d times", progress.reads)
		}
		time.Sleep(time.Minute)
		if progress.reads != 7 {
			t.Error("it is read although nothing is pulled")
		}
	})
}

func TestProgressIsNotRecordedOfTwoImagesOfARepository(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, progress, got := newFakeRuntime(), &fakeProgress{}, &recordedDetails{}
		s.pullTime = 4500 * time.Millisecond
		m := newImages(t, s)
		m.Progress, m.Parallel = progress, 5
		m.puller = newPuller(m.Config)
		var wg sync.WaitGroup
		for _, tag := range []string{"1", "2"} {
			wg.Go(func() { _ = got.ensureRecorded(t.Context(), m, "there:"+tag) })
		}
		wg.Wait()
		if progress.reads != 0 || strings.Contains(fmt.Sprint(got.details), "MB") {
			t.Errorf("%d reads, %q", progress.reads, got.details)
		}
	})
}

// socketProgress is the progress of pulls by the containerd with a socket.
type socketProgress string

func (s socketProgress) PullProgress(ctx context.Context, repository string, since time.Time) (done, total int64, err error) {
	return runtime.PullProgress(ctx, string(s), repository, since)
}

// TestProgressOnRealRuntime pulls an image of several layers from a slow registry.
func TestProgressOnRealRuntime(t *testing.T) {
	rt := nodetest.StartRuntime(t)
	const layers, size, rate = 4, 1_500_000, 500_000
	image := oci.Image{Names: []string{"large:1"}, Process: oci.Process{User: "1000"}}
	random := rand.NewChaCha8([32]byte{})
	for i := range layers {
		data := make([]byte, size)
		_, _ = random.Read(data)
		tree := oci.Tree{}
		tree.Put(fmt.Sprintf("data%d", i), 0o644, data)
		layer, err := tree.Layer()
		if err != nil {
			t.Fatal(err)
		}
		image.Layers = append(image.Layers, layer)
	}
	path := filepath.Join(t.TempDir(), "images.tar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(oci.Write(f, image), f.Close()); err != nil {
		t.Fatal(err)
	}
	r, err := registry.Start(t.Context(), registry.Options{Archives: []string{path}, Rate: rate})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Mirror(filepath.Join(rt.Dir, "certs.d"), "slow.test"); err != nil {
		t.Fatal(err)
	}
	m, err := New(Config{Service: OfCRI(rt.Client), Progress: socketProgress(rt.Socket), Events: newFakeRuntime(), Dir: t.TempDir(),
		Log: discardLog})
	if err != nil {
		t.Fatal(err)
	}
	got := &recordedDetails{}
	if err := got.ensureRecorded(t.Context(), m, "slow.test/large:1"); err != nil {
		t.Fatal(err)
	}
	last, seen := int64(-1), 0
	for _, detail := range got.details[1 : len(got.details)-1] {
		text, found := strings.CutSuffix(detail, " of 6 MB: slow.test/large:1")
		var n int64
		var unit string
		if _, err := fmt.Sscanf(text, "%d %s", &n, &unit); err != nil || !found {
			t.Fatalf("%q: %v", got.details, err)
		}
		if unit == "MB" {
			n *= 1000
		}
		if seen++; n <= last {
			t.Errorf("it went back: %q", got.details)
		}
		last = n
	}
	if seen < 2 || last < 1000 {
		t.Errorf("recorded %q", got.details)
	}
	t.Log(got.details)
}
