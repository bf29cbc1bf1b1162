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

// kept holds finished documents, compressed. A document is made once however many ask for it.
type kept struct {
	mu   sync.Mutex // guards docs
	docs map[string]*doc
}

// doc is one finished document in one format.
type doc struct {
	etag   string
	packed func() ([]byte, error)
}

// get returns the document with that key, and makes it when it is missing or its tag has changed. A
// document that could not be made is tried again.
func (k *kept) get(key, etag string, build func() ([]byte, error)) ([]byte, error) {
	k.mu.Lock()
	d := k.docs[key]
	if d == nil || d.etag != etag {
		d = &doc{etag: etag, packed: sync.OnceValues(func() ([]byte, error) { return pack(build) })}
		k.docs[key] = d
	}
	k.mu.Unlock()
	packed, err := d.packed()
	if err != nil {
		k.mu.Lock()
		if k.docs[key] == d {
			delete(k.docs, key)
		}
		k.mu.Unlock()
	}
	return packed, err
}

// forget drops the v3 documents that are no longer in the index, such as those of a deleted custom
// resource.
func (k *kept) forget(index map[string]string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, d := range k.docs {
		name, _, _ := strings.Cut(strings.TrimPrefix(key, "v3/"), " ")
		if strings.HasPrefix(key, "v3/") && index[name] != d.etag {
			delete(k.docs, key)
		}
	}
}

func pack(build func() ([]byte, error)) ([]byte, error) {
	raw, err := build()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(raw); err != nil {
		return nil, fmt.Errorf("openapi: compress: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("openapi: compress: %w", err)
	}
	return bytes.Clone(b.Bytes()), nil
}

func unpack(packed []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("openapi: decompress: %w", err)
	}
	raw, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("openapi: decompress: %w", err)
	}
	return raw, nil
}

// digest stands for everything that does not change while the process runs.
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

// etag is the tag of a document: a hash of what it is made of rather than of the document itself, so that
// the index can name the tags of all documents and make none of them.
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
