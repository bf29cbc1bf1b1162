package aggregation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
)

const (
	// fetchTimeout limits how long a server may take for a document.
	fetchTimeout = 5 * time.Second
	// maxDiscovery, maxIndex and maxOpenAPI limit the size of documents. Those of Kubernetes itself have 0.2, 0.02 and
	// 5 MB.
	maxDiscovery = 4 << 20
	maxIndex     = 1 << 20
	maxOpenAPI   = 8 << 20
)

// aggregator returns the user that fetches documents.
func aggregator() user.Info {
	return &user.DefaultInfo{Name: "system:kube-aggregator", Groups: []string{user.SystemPrivilegedGroup}}
}

// response is the response of a server to a request for a document.
type response struct {
	code      int
	mediaType string
	params    map[string]string
	etag      string
	body      []byte
}

var errTooLarge = errors.New("the document is too large")

// fetchOne sends a question to a server and reads its answer, of which it takes at most so many bytes. etag is that of
// the answer that is known.
func (a *Aggregator) fetchOne(ctx context.Context, b *backend, path, accept, etag string, most int64) (*response, error) {
	client, at, err := a.Clients.Client(&b.endpoint)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	to := url.URL{Scheme: at.Scheme, Host: at.Host, Path: path}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	setUser(req.Header, aggregator())
	req.Header.Set("Accept", accept)
	if etag != "" {
		req.Header.Set("If-None-Match", etag)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	out := &response{code: resp.StatusCode, etag: resp.Header.Get("Etag")}
	out.mediaType, out.params, _ = mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if out.body, err = io.ReadAll(io.LimitReader(resp.Body, most+1)); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if int64(len(out.body)) > most {
		return nil, fmt.Errorf("read %s: %w: it has more than %d bytes", path, errTooLarge, most)
	}
	return out, nil
}

// base returns the path of a group version.
func (b *backend) base() string { return "/apis/" + b.Group + "/" + b.Version }
