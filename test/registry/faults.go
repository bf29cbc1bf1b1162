package registry

import "net/http"

// Kind is the kind of content that a request reads.
type Kind string

// The kinds. Any is for faults that do not care.
const (
	Any       Kind = ""
	Manifests Kind = "manifests"
	Blobs     Kind = "blobs"
)

// Mode is a way in which an answer fails.
type Mode int

// The modes.
const (
	none            Mode = iota
	ServerError          // 500
	TooManyRequests      // 429, with Retry-After
	Truncated            // the connection ends half way
	WrongBytes           // one bit is wrong, so the digest is too
	Hang                 // no answer
)

// Fault configures which answers fail, and how.
type Fault struct {
	Mode       Mode
	Kind       Kind
	Repository string // without host; empty is every one
	Times      int    // how many answers; 0 is all, until Heal
}

type fault struct {
	Fault
	left int // answers to come; below 0 is without end
}

// Break makes answers fail from now on. Of several faults that fit an answer,
// the one that was asked for first counts.
func (r *Registry) Break(f Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := f.Times
	if left <= 0 {
		left = -1
	}
	r.faults = append(r.faults, &fault{Fault: f, left: left})
}

// Heal ends all faults.
func (r *Registry) Heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = nil
}

// takeFault returns the fault for an answer, if there is one, and counts it.
func (r *Registry) takeFault(a answer) Mode {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.faults {
		if f.left == 0 || f.Kind != Any && f.Kind != a.kind || f.Repository != "" && f.Repository != a.repository {
			continue
		}
		f.left = max(f.left-1, -1)
		return f.Mode
	}
	return none
}

// Counts has the numbers of requests to a repository.
type Counts struct {
	Resolved  int   // questions what a tag is; one for each pull, also if the runtime then has everything
	Manifests int   // manifests that were fetched
	Blobs     int   // configs and layers that were fetched
	Bytes     int64 // of manifests and blobs
	Refused   int   // requests without the right to see it
}

// Pulled are the counts of the repository of an image, named with or without host and tag.
func (r *Registry) Pulled(image string) Counts {
	repository, _ := split(image)
	r.mu.Lock()
	defer r.mu.Unlock()
	return *r.of(repository)
}

// Peak is the largest number of repositories from which blobs were being
// fetched at the same time.
func (r *Registry) Peak() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.peak
}

// of are the counts of a repository. The caller holds mu.
func (r *Registry) of(repository string) *Counts {
	if r.counts[repository] == nil {
		r.counts[repository] = &Counts{}
	}
	return r.counts[repository]
}

// begin counts a request, and returns the function to call at its end.
func (r *Registry) begin(a answer, method string) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.of(a.repository)
	switch {
	case method == http.MethodHead:
		return func() {}
	case a.kind == Manifests:
		c.Manifests++
		return func() {}
	}
	c.Blobs++
	r.active[a.repository]++
	r.peak = max(r.peak, len(r.active))
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.active[a.repository]--; r.active[a.repository] == 0 {
			delete(r.active, a.repository)
		}
	}
}

// resolve returns the digest of a tag, if it exists.
func (r *Registry) resolve(repository, tag string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of(repository).Resolved++
	return r.tags[repository+":"+tag]
}

func (r *Registry) sent(repository string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of(repository).Bytes += int64(n)
}

func (r *Registry) refused(repository string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of(repository).Refused++
}
