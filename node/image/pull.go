package image

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"proa.dev/node/cri"
)

// sharedPull is one pull of an image that several Pods may wait for.
type sharedPull struct {
	done    chan struct{}
	cancel  context.CancelFunc
	waiters int // number of waiting callers; guarded by puller.mu
	// watchers are told the progress; guarded by puller.mu.
	watchers []func(done, total int64)

	// The result, to be read when done is closed.
	image *cri.Image
	used  *login
	took  time.Duration
	err   error
}

// puller pulls a limited number of images at a time, and the same image with the same logins only once.
type puller struct {
	service  Service
	progress Progress // nil if nobody knows it
	slots    chan struct{}

	mu      sync.Mutex // guards what follows
	pulls   map[string]*sharedPull
	running map[*sharedPull]request // the pulls that have a slot
}

func newPuller(c Config) *puller {
	return &puller{service: c.Service, progress: c.Progress, slots: make(chan struct{}, max(c.Parallel, 1)),
		pulls: map[string]*sharedPull{}, running: map[*sharedPull]request{}}
}

// request is what is pulled.
type request struct {
	spec       *cri.ImageSpec
	repository string // the whole name without tag and digest
	logins     []login
	sandbox    *cri.PodSandboxConfig
	watch      func(done, total int64) // is told the progress in bytes; nil if nobody wants to know it
}

// key is equal for requests that one pull can serve. A Pod with other logins must show that they work.
func (r request) key() string {
	var b strings.Builder
	b.WriteString(r.spec.Image)
	for _, l := range r.logins {
		b.WriteString(" " + l.hash())
	}
	return b.String()
}

// pull waits for a pull of an image, its own or one that is under way. A pull is cancelled when no caller waits for it
// any more.
func (p *puller) pull(ctx context.Context, r request) (*sharedPull, error) {
	key := r.key()
	p.mu.Lock()
	f, ok := p.pulls[key]
	if !ok {
		f = &sharedPull{done: make(chan struct{})}
		var own context.Context
		own, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
		p.pulls[key] = f
		go func() {
			defer f.cancel()
			p.run(own, r, f)
			p.mu.Lock()
			if p.pulls[key] == f {
				delete(p.pulls, key)
			}
			p.mu.Unlock()
			close(f.done)
		}()
	}
	f.waiters++
	if r.watch != nil {
		f.watchers = append(f.watchers, r.watch)
	}
	p.mu.Unlock()
	select {
	case <-f.done:
		return f, f.err
	case <-ctx.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		if f.waiters--; f.waiters == 0 {
			f.cancel()
			if p.pulls[key] == f {
				delete(p.pulls, key) // later callers start a new pull
			}
		}
		return nil, ctx.Err()
	}
}

// run pulls when there is a free slot, with one login after the other.
func (p *puller) run(ctx context.Context, r request, f *sharedPull) {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		f.err = ctx.Err()
		return
	}
	defer p.beginRunning(ctx, r, f)()
	began := time.Now()
	ref, used, err := p.pullWithLogins(ctx, r)
	if err == nil {
		f.image, err = accept(ctx, p.service, r.spec, ref)
	}
	f.used, f.err, f.took = used, err, time.Since(began)
}

// beginRunning notes that a pull has a slot, and watches its progress until the function that it returns is called.
func (p *puller) beginRunning(ctx context.Context, r request, f *sharedPull) (end func()) {
	p.mu.Lock()
	p.running[f] = r
	p.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	if p.progress != nil {
		watching.Go(func() { p.watchProgress(ctx, r, f) })
	}
	return func() {
		cancel()
		watching.Wait() // nobody is told the progress of a pull that has ended
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.running, f)
	}
}

func (p *puller) pullWithLogins(ctx context.Context, r request) (string, *login, error) {
	if len(r.logins) == 0 {
		ref, err := p.service.Pull(ctx, r.spec, nil, r.sandbox)
		return ref, nil, err
	}
	var errs []error
	for i := range r.logins {
		ref, err := p.service.Pull(ctx, r.spec, r.logins[i].auth(), r.sandbox)
		if err == nil {
			return ref, &r.logins[i], nil
		}
		errs = append(errs, err)
	}
	return "", nil, joinErrors(errs)
}

// maxUser limits the length of the user that an image names. The runtime says it in every list of images, and a list has a limit.
const maxUser = 1 << 10

// accept returns what the runtime knows of an image that was pulled. An image that would make lists of images too long is removed.
func accept(ctx context.Context, s Service, spec *cri.ImageSpec, ref string) (*cri.Image, error) {
	image, err := status(ctx, s, spec, ref)
	if cri.TooLarge(err) || err == nil && len(image.Username) > maxUser {
		return nil, errors.Join(fmt.Errorf("the user that the image names has more than %d characters", maxUser), s.Remove(ctx, ref))
	}
	return image, err
}

// status returns what the runtime knows of an image that was pulled: by its name, or by the reference that the runtime
// returned.
func status(ctx context.Context, s Service, spec *cri.ImageSpec, ref string) (*cri.Image, error) {
	for _, name := range []*cri.ImageSpec{spec, {Image: ref}} {
		if image, err := s.Status(ctx, name); err != nil || image != nil {
			return image, err
		}
	}
	return nil, errors.New("the image was pulled and is not here")
}

// joinErrors combines several errors, without duplicates.
func joinErrors(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	var texts []string
	seen := map[string]bool{}
	for _, err := range errs {
		if !seen[err.Error()] {
			seen[err.Error()] = true
			texts = append(texts, err.Error())
		}
	}
	if len(texts) == 1 {
		return errs[0]
	}
	return errors.New("[" + strings.Join(texts, ", ") + "]")
}
