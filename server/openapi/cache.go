package openapi

import (
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"
)

// cacheBytes is the limit of the compressed documents in memory. Those of the built-in group versions take less than 1
// MiB together.
const cacheBytes = 4 << 20

// documentCache holds finished documents, compressed. A document is built once, however many requests wait for it. When
// the documents take more than the limit, the least recently used are evicted.
type documentCache struct {
	limit int
	mu    sync.Mutex // guards docs and clock
	docs  map[string]*doc
	clock int64 // counts requests, to tell which document was used last
}

// doc is one finished document in one format.
type doc struct {
	etag string
	used int64 // the clock of the last request for it
	size int   // compressed; 0 while it is being built
	make func() (compressed, error)
}

// compressed is a finished document.
type compressed struct {
	gzip []byte
	size int64 // uncompressed
}

// get returns the document with that key, and builds it when it is missing or its ETag has changed. A document that
// could not be built is tried again.
func (k *documentCache) get(key, etag string, build func(io.Writer) error) (compressed, error) {
	k.mu.Lock()
	d := k.docs[key]
	if d == nil || d.etag != etag {
		d = &doc{etag: etag, make: sync.OnceValues(func() (compressed, error) { return compress(build) })}
		k.docs[key] = d
	}
	k.clock++
	d.used = k.clock
	k.mu.Unlock()
	p, err := d.make()
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		if k.docs[key] == d {
			delete(k.docs, key)
		}
		return compressed{}, err
	}
	d.size = len(p.gzip)
	k.shrink()
	return p, nil
}

// shrink evicts documents until the others are within the limit. The newest stays, whatever its size.
func (k *documentCache) shrink() {
	for {
		total, oldest := 0, ""
		for key, d := range k.docs {
			total += d.size
			if d.size > 0 && d.used < k.clock && (oldest == "" || d.used < k.docs[oldest].used) {
				oldest = key
			}
		}
		if total <= k.limit || oldest == "" {
			return
		}
		delete(k.docs, oldest)
	}
}

// removeStale removes v3 documents that are no longer in the index, such as those of a deleted custom resource.
func (k *documentCache) removeStale(index map[string]string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, d := range k.docs {
		name, _, _ := strings.Cut(strings.TrimPrefix(key, "v3/"), " ")
		if strings.HasPrefix(key, "v3/") && index[name] != d.etag {
			delete(k.docs, key)
		}
	}
}

// compress builds a document and compresses it on the way.
func compress(build func(io.Writer) error) (compressed, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	n := &counter{w: z}
	if err := build(n); err != nil {
		return compressed{}, err
	}
	if err := z.Close(); err != nil {
		return compressed{}, fmt.Errorf("openapi: compress: %w", err)
	}
	return compressed{bytes.Clone(b.Bytes()), n.written}, nil
}

// counter counts the bytes that are written through it.
type counter struct {
	w       io.Writer
	written int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.written += int64(n)
	return n, err
}

// digest returns a hash of everything that does not change while the process runs.
func (s *Service) digest() []byte {
	h := sha512.New()
	fmt.Fprintf(h, "%s %t\n", s.options.Version, s.options.CBOR)
	_ = fs.WalkDir(data, ".", func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			raw, err := data.ReadFile(path)
			if err != nil {
				return err
			}
			h.Write(raw)
		}
		return err
	})
	return h.Sum(nil)
}

// etag returns the ETag of a document: a hash of what it is made of rather than of the document itself, so that the
// index can list the ETags of all documents without building any.
func (s *Service) etag(name string, parts ...any) string {
	h := sha512.New()
	h.Write(s.seed())
	fmt.Fprintln(h, name)
	for _, p := range parts {
		if raw, err := json.Marshal(p); err == nil {
			h.Write(raw)
		}
	}
	return fmt.Sprintf("%X", h.Sum(nil))
}
