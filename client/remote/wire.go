package remote

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
)

// message is an object that can be encoded as protobuf.
type message interface{ Unmarshal([]byte) error }

// mediaOf returns the encoding of an object in requests: protobuf if its kind has it, otherwise JSON.
func mediaOf(o any) codec.Media {
	if _, ok := o.(message); ok {
		return codec.Proto
	}
	return codec.JSON
}

func (c *Client) encode(o kind.Object, m codec.Media) ([]byte, error) {
	var buf bytes.Buffer
	if err := c.codec.Append(&buf, m, o); err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", o.GetObjectKind().GroupVersionKind().Kind, o.GetName(), err)
	}
	return buf.Bytes(), nil
}

func (c *Client) decode(data []byte, m codec.Media, want schema.GroupVersionKind, into kind.Object) (kind.Object, error) {
	if u, ok := into.(*unstructured.Unstructured); ok {
		if err := u.UnmarshalJSON(data); err != nil {
			return nil, fmt.Errorf("decode a %s of the server: %w", want.Kind, err)
		}
		return u, nil
	}
	o, _, err := c.codec.Decode(data, m, want, into, false)
	if err != nil {
		return nil, fmt.Errorf("decode a %s of the server: %w", want.Kind, err)
	}
	out, ok := o.(kind.Object)
	if !ok {
		return nil, fmt.Errorf("the server has sent no %s", want.Kind)
	}
	return out, nil
}

// isStatus reports whether a response is a Status rather than an object.
func isStatus(data []byte, m codec.Media) bool {
	var t metav1.TypeMeta
	if m == codec.Proto {
		var u runtime.Unknown
		if len(data) < 4 || u.Unmarshal(data[4:]) != nil {
			return false
		}
		return u.Kind == "Status" && u.APIVersion == "v1"
	}
	return json.Unmarshal(data, &t) == nil && t.Kind == "Status" && t.APIVersion == "v1"
}

// statusError returns the error of a response that is no success.
func (c *Client) statusError(resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxObject))
	if err != nil {
		return fmt.Errorf("read the refusal %s of the server: %w", resp.Status, err)
	}
	contentType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if m, known := codec.MediaOf(contentType); known && isStatus(body, m) {
		if st := c.status(body, m); st != nil {
			return &apierrors.StatusError{ErrStatus: *st}
		}
	}
	after, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	return apierrors.NewGenericServerResponse(resp.StatusCode, resp.Request.Method, schema.GroupResource{}, "",
		string(bytes.TrimSpace(body)), after, true)
}

func (c *Client) status(data []byte, m codec.Media) *metav1.Status {
	st := &metav1.Status{}
	if err := c.codec.DecodeOptions(data, m, schema.GroupVersionKind{Version: "v1", Kind: "Status"}, st); err != nil {
		return nil
	}
	return st
}

// list decodes a list, and returns its objects and its revision.
func (c *Client) list(data []byte, m codec.Media, def *kind.Def) (items []kind.Object, rev int64, err error) {
	var meta metav1.ListMeta
	if m == codec.Proto {
		items, meta, err = protoItems(data, def)
	} else if jsonSize(data, m) > c.MaxList {
		err = errTooLong
	} else {
		items, meta, err = c.jsonItems(data, def)
	}
	if err == nil {
		rev, err = strconv.ParseInt(meta.ResourceVersion, 10, 64)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("decode a list of %s: %w", def.Resource(), err)
	}
	return items, rev, nil
}

// jsonSize returns how much memory the values of a document take, as bytes of JSON of usual density: a document of empty
// objects takes many times its length.
func jsonSize(data []byte, m codec.Media) int64 {
	if m == codec.Proto {
		return int64(len(data))
	}
	values := bytes.Count(data, []byte(",")) + bytes.Count(data, []byte("{")) + bytes.Count(data, []byte("["))
	return int64(max(len(data), 16*values))
}

func (c *Client) jsonItems(data []byte, def *kind.Def) (items []kind.Object, meta metav1.ListMeta, err error) {
	var l struct {
		Metadata metav1.ListMeta   `json:"metadata"`
		Items    []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(data, &l); err != nil {
		return nil, meta, err
	}
	for _, raw := range l.Items {
		o, err := c.decode(raw, codec.JSON, def.GroupVersionKind, def.New())
		if err != nil {
			return nil, meta, err
		}
		items = append(items, o)
	}
	return items, l.Metadata, nil
}

var errBroken = errors.New("the message is broken")

// protoItems reads a list message: metadata is field 1 and items are field 2 of every list.
func protoItems(data []byte, def *kind.Def) (items []kind.Object, meta metav1.ListMeta, err error) {
	var u runtime.Unknown
	if len(data) < 4 || string(data[:4]) != "k8s\x00" {
		return nil, meta, errBroken
	}
	if err := u.Unmarshal(data[4:]); err != nil {
		return nil, meta, err
	}
	for rest := u.Raw; len(rest) > 0; {
		num, typ, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return nil, meta, errBroken
		}
		rest = rest[n:]
		if typ != protowire.BytesType || num > 2 {
			if n = protowire.ConsumeFieldValue(num, typ, rest); n < 0 {
				return nil, meta, errBroken
			}
			rest = rest[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(rest)
		if n < 0 {
			return nil, meta, errBroken
		}
		rest = rest[n:]
		if num == 1 {
			if err := meta.Unmarshal(value); err != nil {
				return nil, meta, err
			}
			continue
		}
		o := def.New()
		if err := o.(message).Unmarshal(value); err != nil {
			return nil, meta, err
		}
		o.GetObjectKind().SetGroupVersionKind(def.GroupVersionKind)
		items = append(items, o)
	}
	return items, meta, nil
}

// event is one event of a watch.
type event struct {
	kind   string // ADDED, MODIFIED, DELETED, BOOKMARK
	object kind.Object
	rev    int64
	size   int64 // about how much of a list it would be
}

// events decodes the stream of a watch.
type events struct {
	client *Client
	def    *kind.Def
	media  codec.Media
	from   *bufio.Reader
	json   *json.Decoder
	rest   *io.LimitedReader // what json may read of the current event
}

func (c *Client) events(body io.Reader, def *kind.Def, m codec.Media) *events {
	e := &events{client: c, def: def, media: m, from: bufio.NewReaderSize(body, 32<<10)}
	if m != codec.Proto {
		e.rest = &io.LimitedReader{R: e.from}
		e.json = json.NewDecoder(e.rest)
	}
	return e
}

// next waits for the next event. An ERROR event is returned as the error that its Status describes.
func (e *events) next() (event, error) {
	kindOf, raw, err := e.frame()
	if err != nil {
		return event{}, err
	}
	if kindOf == "ERROR" {
		if st := e.client.status(raw, e.media); st != nil {
			return event{}, &apierrors.StatusError{ErrStatus: *st}
		}
		return event{}, errors.New("the server has ended the watch")
	}
	o, err := e.client.decode(raw, e.media, e.def.GroupVersionKind, e.def.New())
	if err != nil {
		return event{}, err
	}
	rev, err := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return event{}, fmt.Errorf("an event without a revision: %w", err)
	}
	return event{kindOf, o, rev, jsonSize(raw, e.media)}, nil
}

func (e *events) frame() (kindOf string, raw []byte, err error) {
	if e.json != nil {
		var ev struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		e.rest.N = maxObject
		if err := e.json.Decode(&ev); err != nil {
			if e.rest.N == 0 {
				err = errTooLong
			}
			return "", nil, err
		}
		return ev.Type, ev.Object, nil
	}
	var size [4]byte
	if _, err := io.ReadFull(e.from, size[:]); err != nil {
		return "", nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxObject {
		return "", nil, errTooLong
	}
	buf := make([]byte, n)
	if _, err := io.ReadFull(e.from, buf); err != nil {
		return "", nil, err
	}
	var ev metav1.WatchEvent
	if err := ev.Unmarshal(buf); err != nil {
		return "", nil, fmt.Errorf("decode an event: %w", err)
	}
	return ev.Type, ev.Object.Raw, nil
}
