// Package otlptest reads OTLP/JSON strictly, as the official messages define it, for tests of what is exported.
package otlptest

import (
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
)

// Receiver is an OTLP/HTTP receiver that keeps the spans it gets. It refuses what is not valid OTLP/JSON.
type Receiver struct {
	// Authorization is the header Authorization that requests must have; empty for any. Encoding is the Content-Encoding that they must
	// have: gzip, or empty for none.
	Authorization, Encoding string

	mu    sync.Mutex // guards what follows
	spans []Span
	err   error
}

// Span is a span with what belongs to it in OTLP's messages.
type Span struct {
	*tracepb.Span
	// Tags and Resource are the attributes of the span and of the process that has recorded it, as texts.
	Tags, Resource map[string]string
}

// ServeHTTP implements http.Handler.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if r.Authorization != "" && req.Header.Get("Authorization") != r.Authorization {
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
		return
	}
	body, err := r.read(req)
	media := req.Header.Get("Content-Type")
	if err == nil && (req.Method != http.MethodPost || req.URL.Path != "/v1/traces" || media != "application/json") {
		err = fmt.Errorf("%s %s of type %q is no export of traces", req.Method, req.URL, media)
	}
	var got []Span
	if err == nil {
		got, err = Decode(body)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.spans = append(r.spans, got...); err != nil {
		r.err = err
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, _ = io.WriteString(w, `{"partialSuccess":{}}`) // the client may have gone
}

// read reads the body of a request.
func (r *Receiver) read(req *http.Request) ([]byte, error) {
	if got := req.Header.Get("Content-Encoding"); got != r.Encoding {
		return nil, fmt.Errorf("the body has the encoding %q, want %q", got, r.Encoding)
	}
	if r.Encoding == "" {
		return io.ReadAll(req.Body)
	}
	z, err := gzip.NewReader(req.Body)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// Spans returns what has arrived, and the last error.
func (r *Receiver) Spans() ([]Span, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Span(nil), r.spans...), r.err
}

// Decode reads an ExportTraceServiceRequest in OTLP/JSON. A field that the official messages do not have is an error.
func Decode(body []byte) ([]Span, error) {
	var generic any
	if err := json.Unmarshal(body, &generic); err != nil {
		return nil, err
	}
	if err := convert(generic); err != nil {
		return nil, err
	}
	body, err := json.Marshal(generic)
	if err != nil {
		return nil, err
	}
	var req collector.ExportTraceServiceRequest
	if err := protojson.Unmarshal(body, &req); err != nil {
		return nil, err
	}
	return Spans(&req), nil
}

// Spans returns the spans of a request.
func Spans(req *collector.ExportTraceServiceRequest) (out []Span) {
	for _, rs := range req.GetResourceSpans() {
		resource := texts(rs.GetResource().GetAttributes())
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				out = append(out, Span{s, texts(s.GetAttributes()), resource})
			}
		}
	}
	return out
}

// convert makes of OTLP's JSON that of protobuf, in which bytes are in base64, and checks where the first is stricter: IDs are in
// lower-case hexadecimal and have their length, and 64-bit numbers are decimal strings.
func convert(v any) error {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if err := convert(e); err != nil {
				return err
			}
		}
	case map[string]any:
		for key, e := range v {
			var err error
			switch {
			case key == "traceId":
				v[key], err = base64Of(e, 16)
			case key == "spanId" || key == "parentSpanId" && e != "":
				v[key], err = base64Of(e, 8)
			case strings.HasSuffix(key, "UnixNano") || key == "intValue":
				if _, ok := e.(string); !ok {
					err = fmt.Errorf("%v is not a decimal string", e)
				}
			default:
				err = convert(e)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	return nil
}

func base64Of(v any, length int) (string, error) {
	text, _ := v.(string)
	id, err := hex.DecodeString(text)
	if err != nil || len(id) != length || strings.ToLower(text) != text || strings.Trim(text, "0") == "" {
		return "", fmt.Errorf("%v is not an ID of %d bytes in hexadecimal", v, length)
	}
	return base64.StdEncoding.EncodeToString(id), nil
}

// texts returns attributes as texts by their keys.
func texts(list []*commonpb.KeyValue) map[string]string {
	out := map[string]string{}
	for _, kv := range list {
		switch v := kv.GetValue().GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			out[kv.GetKey()] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			out[kv.GetKey()] = fmt.Sprint(v.IntValue)
		case *commonpb.AnyValue_BoolValue:
			out[kv.GetKey()] = fmt.Sprint(v.BoolValue)
		default:
			out[kv.GetKey()] = fmt.Sprintf("%T", v)
		}
	}
	return out
}
