package image

import (
	"context"
	"fmt"
	"time"

	"proa.dev/internal/wait"
)

// Progress tells how much of an image that is being pulled has been downloaded.
type Progress interface {
	// PullProgress returns how many bytes of the image that is being pulled from a repository since a moment have been downloaded, and how
	// many there are. total is 0 while that is not known.
	PullProgress(ctx context.Context, repository string, since time.Time) (done, total int64, err error)
}

// watchProgress tells those who wait for a pull how far it is, until ctx ends.
func (p *puller) watchProgress(ctx context.Context, r request, f *sharedPull) {
	began := time.Now()
	for wait.Sleep(ctx, progressPause(time.Since(began), len(p.watchers(f)))) == nil {
		if !p.isOnlyImageOf(r) {
			continue // what is being downloaded from the repository may belong to either image
		}
		done, total, err := p.progress.PullProgress(ctx, r.repository, began)
		if err != nil || total <= 0 {
			continue // the pull does not depend on it, and says itself what is wrong
		}
		for _, watch := range p.watchers(f) {
			watch(done, total)
		}
	}
}

// progressPause returns how long to wait before the progress of a pull is read and recorded again. It is a second at first, and longer for
// a pull that takes long or that many Pods wait for, because a node may send only so many records.
func progressPause(age time.Duration, watchers int) time.Duration {
	const perSecond = 4 // records of one pull
	return max(time.Second, age/60) * time.Duration(max(1, (watchers+perSecond-1)/perSecond))
}

// watchers returns the functions that are told the progress of a pull.
func (p *puller) watchers(f *sharedPull) []func(done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return f.watchers[:len(f.watchers):len(f.watchers)]
}

// isOnlyImageOf reports whether no other image of the repository of a request is being pulled.
func (p *puller) isOnlyImageOf(r request) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, other := range p.running {
		if other.repository == r.repository && other.spec.Image != r.spec.Image {
			return false
		}
	}
	return true
}

// progressText says how far the pull of an image is. It ends with the image, which traces take as the name of the pull.
func progressText(done, total int64, image string) string {
	return bytesText(done) + " of " + bytesText(total) + ": " + image
}

// bytesText writes a number of bytes as people read it.
func bytesText(n int64) string {
	switch {
	case n < 1e6:
		return fmt.Sprintf("%d kB", n/1e3)
	case n < 10e9:
		return fmt.Sprintf("%d MB", n/1e6)
	}
	return fmt.Sprintf("%.1f GB", float64(n)/1e9)
}
