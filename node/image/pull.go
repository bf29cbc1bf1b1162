package image

import (
	"context"
	"errors"
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

	// The result, to be read when done is closed.
	image *cri.Image
	used  *login
	took  time.Duration
	err   error
}

// puller pulls a limited number of images at a time, and the same image with the same logins only once.
type puller struct {
	service Service
	slots   chan struct{}

	mu    sync.Mutex // guards pulls and their waiters
	pulls map[string]*sharedPull
}

func newPuller(s Service, parallel int) *puller {
	return &puller{service: s, slots: make(chan struct{}, max(parallel, 1)), pulls: map[string]*sharedPull{}}
}

// request is what is pulled.
type request struct {
	spec    *cri.ImageSpec
	logins  []login
	sandbox *cri.PodSandboxConfig
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
	began := time.Now()
	ref, used, err := p.pullWithLogins(ctx, r)
	if err == nil {
		f.image, err = status(ctx, p.service, r.spec, ref)
	}
	f.used, f.err, f.took = used, err, time.Since(began)
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
