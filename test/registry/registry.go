// Package registry is a container registry for tests: it serves the images of
// OCI archives on loopback, over HTTP or HTTPS, to everybody or to those with a
// password or a token, as slowly and as badly as a test asks for, and counts
// what was pulled. It serves only; images get into it as archives. It owns one
// listener and nothing on disk.
//
// The host in the name of an image does not matter: registry.k8s.io/pause:3.10.2
// is served as the repository pause. So a runtime that is told by Mirror to ask
// here for registry.k8s.io gets it under its own name.
package registry

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"proa.dev/test/images/oci"
)

// Auth is the authentication that a registry requires.
type Auth int

// The ways of asking.
const (
	Anonymous Auth = iota // nothing
	Basic                 // user and password with each request
	Token                 // a token for each repository, which user and password get
)

// Scheme is the protocol of a registry.
type Scheme string

// The schemes. With HTTPS the registry has its own certificate authority, see Registry.CA.
const (
	HTTP  Scheme = "http"
	HTTPS Scheme = "https"
)

// Options say what to serve and how. The zero value serves nothing, to
// everybody, over HTTP, on a free port of loopback.
type Options struct {
	Archives []string // paths of OCI archives
	Listen   string   // an address, with port, at which its clients reach it
	Scheme   Scheme
	Auth     Auth
	User     string // with Basic and Token; "test" if empty
	Password string // with Basic and Token; "secret" if empty
	Rate     int    // bytes a second for each answer; 0 is without limit
}

// Registry is a running registry. All its methods can be called at any time.
type Registry struct {
	// Addr is the address with port that it listens on.
	Addr string

	options  Options
	ca       []byte
	server   *http.Server
	served   sync.WaitGroup
	archives []*oci.Archive
	key      []byte // signs tokens

	mu     sync.Mutex        // guards what follows
	tags   map[string]string // to digests
	made   map[string][]byte // blobs that are in no archive, by digest
	faults []*fault
	rate   int
	counts map[string]*Counts
	active map[string]int // requests for blobs under way, by repository
	peak   int
}

// Start begins to serve. The registry ends with the context, or with Close.
func Start(ctx context.Context, options Options) (*Registry, error) {
	options = withDefaults(options)
	r := &Registry{
		options: options, rate: options.Rate, key: make([]byte, 32),
		tags: map[string]string{}, made: map[string][]byte{}, counts: map[string]*Counts{}, active: map[string]int{},
	}
	if _, err := rand.Read(r.key); err != nil {
		return nil, err
	}
	for _, path := range options.Archives {
		if err := r.Add(path); err != nil {
			return nil, errors.Join(err, r.closeArchives())
		}
	}
	listener, err := r.listen(ctx)
	if err != nil {
		return nil, errors.Join(err, r.closeArchives())
	}
	r.Addr = listener.Addr().String()
	r.server = &http.Server{Handler: r.handler(), ReadHeaderTimeout: time.Minute}
	r.served.Go(func() {
		_ = r.server.Serve(listener) // it ends when the registry is closed
	})
	context.AfterFunc(ctx, func() { _ = r.Close() })
	return r, nil
}

func withDefaults(o Options) Options {
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.Scheme == "" {
		o.Scheme = HTTP
	}
	if o.User == "" {
		o.User = "test"
	}
	if o.Password == "" {
		o.Password = "secret"
	}
	return o
}

func (r *Registry) listen(ctx context.Context) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", r.options.Listen)
	if err != nil {
		return nil, err
	}
	switch r.options.Scheme {
	case HTTP:
		return listener, nil
	case HTTPS:
		host, _, err := net.SplitHostPort(listener.Addr().String())
		if err != nil {
			return nil, errors.Join(err, listener.Close())
		}
		pair, ca, err := certificate(host)
		if err != nil {
			return nil, errors.Join(err, listener.Close())
		}
		r.ca = ca
		return tls.NewListener(listener,
			&tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}), nil
	}
	return nil, errors.Join(fmt.Errorf("a registry speaks http or https, not %q", r.options.Scheme), listener.Close())
}

// Close ends the registry, also what is being sent. It may be called more than once.
func (r *Registry) Close() error {
	err := r.server.Close()
	r.served.Wait()
	return errors.Join(err, r.closeArchives())
}

func (r *Registry) closeArchives() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []error
	for _, a := range r.archives {
		all = append(all, a.Close())
	}
	r.archives = nil
	return errors.Join(all...)
}

// URL returns the URL of the registry.
func (r *Registry) URL() string { return string(r.options.Scheme) + "://" + r.Addr }

// CA is the certificate authority of an HTTPS registry, as PEM.
func (r *Registry) CA() []byte { return r.ca }

// Image is the name under which a runtime pulls an image straight from here:
// the address, and the name without its host.
func (r *Registry) Image(name string) string {
	repository, tag := split(name)
	return r.Addr + "/" + repository + ":" + tag
}

// Add serves the images of another archive too. A tag that is there already
// moves to the new image.
func (r *Registry) Add(archive string) error {
	a, err := oci.Open(archive)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.archives = append(r.archives, a)
	for _, name := range a.Names() {
		repository, tag := split(name)
		r.tags[repository+":"+tag], _ = a.Digest(name)
	}
	return nil
}

// Tag adds a name to a served image, or moves an existing name to it.
// Both are names with or without host.
func (r *Registry) Tag(from, to string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	repository, tag := split(from)
	digest, ok := r.tags[repository+":"+tag]
	if !ok {
		return fmt.Errorf("the registry has no image %s:%s", repository, tag)
	}
	repository, tag = split(to)
	r.tags[repository+":"+tag] = digest
	return nil
}

// Vary serves an image of an archive under another name too, with a layer of
// noise on top that no runtime can have yet. So every test can have an image of
// its own, as large as it likes, that really has to be pulled.
func (r *Registry) Vary(from, to string, bytes int) error {
	noise := make([]byte, bytes)
	if _, err := rand.Read(noise); err != nil {
		return err
	}
	tree := oci.Tree{}
	tree.Put("noise", 0o644, append(noise, rand.Text()...))
	layer, err := tree.Layer()
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.archives {
		if _, ok := a.Digest(from); !ok {
			continue
		}
		blobs, err := a.Extend(from, layer)
		if err != nil {
			return err
		}
		repository, tag := split(to)
		for _, b := range blobs {
			r.made[b.Digest] = b.Data
			r.tags[repository+":"+tag] = b.Digest // of the last, which is the manifest
		}
		return nil
	}
	return fmt.Errorf("no archive of the registry has an image %s", from)
}

// SetRate changes how many bytes a second each answer is sent with; 0 is
// without limit. Answers that are on their way are not changed.
func (r *Registry) SetRate(bytesPerSecond int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rate = bytesPerSecond
}

// split returns the repository of an image, without its host, and the tag.
func split(name string) (repository, tag string) {
	repository, tag = name, "latest"
	if at := strings.LastIndexByte(name, ':'); at > strings.LastIndexByte(name, '/') {
		repository, tag = name[:at], name[at+1:]
	}
	// The first part is a host if it could not be the beginning of a repository.
	host, rest, ok := strings.Cut(repository, "/")
	if ok && (strings.ContainsAny(host, ".:") || host == "localhost") {
		repository = rest
	}
	return repository, tag
}
