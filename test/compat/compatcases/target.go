package compatcases

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"proa.dev/test/compat/answerdiff"
	"proa.dev/test/upstream"
)

// Target is one of the two servers.
type Target struct {
	name   string
	host   string
	Port   string
	client *http.Client
}

// NewTarget returns the server of a kubeconfig.
func NewTarget(name, kubeconfig string) (*Target, error) {
	config, err := upstream.LoadConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "compat"
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	host := strings.TrimSuffix(config.Host, "/")
	t := &Target{name: name, host: host, client: client}
	if u, err := url.Parse(host); err == nil {
		t.Port = u.Port()
	}
	return t, nil
}

// Call is one request.
type Call struct {
	Method, path string
	Query        url.Values
	accept       string
	contentType  string
	header       map[string]string
	Body         []byte
}

func (c *Call) String() string {
	s := c.Method + " " + c.path
	if len(c.Query) > 0 {
		s += "?" + c.Query.Encode()
	}
	return s
}

// Answer is what a client can see of a response.
type Answer struct {
	Code        int
	ContentType string
	Warnings    []string
	Body        any
}

// requestLimit bounds one request, so that a hanging server is a difference
// and not the end of the run.
const requestLimit = 20 * time.Second

// Do sends a request and returns what a client can see of the response.
func (t *Target) Do(ctx context.Context, c *Call) (*Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	resp, err := t.send(ctx, c)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("%s: read answer: %w", t.name, err)
	}
	a := &Answer{Code: resp.StatusCode, ContentType: resp.Header.Get("Content-Type"), Warnings: resp.Header.Values("Warning")}
	if c.Query.Get("watch") == "true" && a.Code == http.StatusOK {
		a.Body = decodeEvents(data)
	} else {
		a.Body = decode(a.ContentType, data)
	}
	return a, nil
}

func (t *Target) send(ctx context.Context, c *Call) (*http.Response, error) {
	target := t.host + c.path
	if len(c.Query) > 0 {
		target += "?" + c.Query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, c.Method, target, bytes.NewReader(c.Body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", cmp.Or(c.accept, "application/json"))
	if c.contentType != "" {
		req.Header.Set("Content-Type", c.contentType)
	} else if c.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for k, v := range c.header {
		req.Header.Set(k, v)
	}
	resp, err := t.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.name, err)
	}
	return resp, nil
}

// decode turns a body into plain values: JSON and YAML into a tree, protobuf
// into a note of its presence, all else into text.
func decode(contentType string, data []byte) any {
	switch {
	case len(data) == 0:
		return nil
	case strings.HasPrefix(contentType, "application/json"):
		if v, err := answerdiff.ParseJSON(data); err == nil {
			return v
		}
	case strings.HasPrefix(contentType, "application/yaml"):
		if plain, err := yaml.YAMLToJSON(data); err == nil {
			if v, err := answerdiff.ParseJSON(plain); err == nil {
				return v
			}
		}
	case strings.Contains(contentType, "protobuf"):
		return decodeProtobuf(data)
	}
	if data[0] == '{' {
		// Some documents are JSON whatever their type says.
		if v, err := answerdiff.ParseJSON(data); err == nil {
			return v
		}
	}
	return string(data)
}

// decodeProtobuf turns a protobuf body into the tree its JSON would be, for
// the kinds of the published API.
func decodeProtobuf(data []byte) any {
	if object, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil); err == nil {
		if plain, err := json.Marshal(object); err == nil {
			if v, err := answerdiff.ParseJSON(plain); err == nil {
				return v
			}
		}
	}
	return fmt.Sprintf("<protobuf, envelope %v>", bytes.HasPrefix(data, []byte("k8s\x00")))
}

// encodeProtobuf is the protobuf form of an object of the published API.
func encodeProtobuf(object map[string]any) ([]byte, bool) {
	typed, _, err := scheme.Codecs.UniversalDeserializer().Decode(answerdiff.Encode(object), nil, nil)
	if err != nil {
		return nil, false
	}
	var b bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(typed, &b); err != nil {
		return nil, false
	}
	return b.Bytes(), true
}

// decodeEvents turns the lines of a watch into a list.
func decodeEvents(data []byte) any {
	out := []any{}
	for line := range bytes.Lines(data) {
		v, err := answerdiff.ParseJSON(line)
		if err != nil {
			v = string(line)
		}
		out = append(out, v)
	}
	return out
}

// Watch follows a watch until its context ends and sends each event. It closes
// the channel at the end.
func (t *Target) Watch(ctx context.Context, c *Call) (<-chan any, error) {
	resp, err := t.send(ctx, c) //nolint:bodyclose // the goroutine that reads the body closes it
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("%s: watch answered %s", t.name, resp.Status)
	}
	events := make(chan any, 1024)
	go func() {
		defer close(events)
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			if v, err := answerdiff.ParseJSON(lines.Bytes()); err == nil {
				events <- v
			}
		}
	}()
	return events, nil
}
