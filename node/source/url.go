package source

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"proa.dev/node/clock"
)

// poll asks a URL for manifests, again and again.
func (s *Source) poll(ctx context.Context) {
	asker := &http.Client{Timeout: 10 * time.Second}
	var last []byte
	failures := 0
	for ctx.Err() == nil {
		text, err := s.fetch(ctx, asker)
		switch {
		case err == nil && len(text) == 0:
			s.tell(ctx, batch{source: FromURL, whole: true})
			err = fmt.Errorf("zero-length data received from %v", s.URL)
		case err == nil && (last == nil || !bytes.Equal(text, last)):
			pods, wrong := decode(text, s.origin(FromURL, s.URL))
			if err = wrong; err == nil {
				s.tell(ctx, batch{source: FromURL, all: pods, whole: true})
			}
		}
		if text != nil {
			last = text
		}
		if err == nil {
			failures = 0
		} else if failures++; failures <= 3 && ctx.Err() == nil {
			s.Log.Error("static Pods cannot be read from their URL; those that run stay", "url", s.URL, "err", err)
		}
		clock.Sleep(ctx, s.URLEvery)
	}
}

func (s *Source) fetch(ctx context.Context, asker *http.Client) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	if err != nil {
		return nil, err
	}
	if s.Header != nil {
		req.Header = s.Header.Clone()
	}
	res, err := asker.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxManifest+1))
	switch {
	case err != nil:
		return nil, err
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%v: %v", s.URL, res.Status)
	case len(text) > maxManifest:
		return nil, fmt.Errorf("%v: the answer is longer than %d bytes", s.URL, maxManifest)
	}
	if text == nil {
		text = []byte{}
	}
	return text, nil
}
