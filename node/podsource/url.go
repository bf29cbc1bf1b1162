package podsource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"proa.dev/internal/wait"
)

// pollURL requests the manifests of a URL periodically.
func (s *Source) pollURL(ctx context.Context) {
	httpClient := newHTTPClient()
	var last []byte
	failures := 0
	for ctx.Err() == nil {
		text, err := s.fetch(ctx, httpClient)
		switch {
		case err == nil && len(text) == 0:
			s.send(ctx, batch{source: FromURL, whole: true})
			err = errors.New("zero-length data received")
		case err == nil && (last == nil || !bytes.Equal(text, last)):
			pods, wrong := decode(text, s.origin(FromURL, s.URL))
			if err = wrong; err == nil {
				s.send(ctx, batch{source: FromURL, all: pods, whole: true})
			}
		}
		if text != nil {
			last = text
		}
		if err == nil {
			failures = 0
		} else if failures++; failures <= 3 && ctx.Err() == nil {
			s.Log.Error("static Pods cannot be read from their URL; those that run stay", "url", redactedURL(s.URL), "err", err)
		}
		_ = wait.Sleep(ctx, s.URLEvery)
	}
}

// newHTTPClient makes the client that fetches manifests. It follows no redirect: the answer is run as root, so it must come
// from the configured URL, and the header of the request is for that server only.
func newHTTPClient() *http.Client {
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Timeout: 10 * time.Second, CheckRedirect: stay}
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
	if e, ok := errors.AsType[*url.Error](err); ok {
		return nil, e.Err // without the URL, which may contain a password
	}
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	switch {
	case res.StatusCode >= 300 && res.StatusCode < 400:
		return nil, fmt.Errorf("the answer is %s; redirects are not followed, so give the URL to which it leads if you trust it", res.Status)
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the answer is %s", res.Status)
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, maxManifest+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxManifest:
		return nil, fmt.Errorf("the answer is longer than %d bytes", maxManifest)
	}
	if text == nil {
		text = []byte{}
	}
	return text, nil
}

// redactedURL returns a URL for logs: without a password and without its query.
func redactedURL(where string) string {
	u, err := url.Parse(where)
	if err != nil {
		return "(a URL that cannot be read)"
	}
	u.RawQuery, u.ForceQuery, u.Fragment = "", false, ""
	return u.Redacted()
}
