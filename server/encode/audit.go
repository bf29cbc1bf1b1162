package encode

import (
	"bytes"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/lib/codec"
	"proa.dev/server"
	"proa.dev/server/audit"
)

// AuditResponse adds an answer to its audit record. sent is what the client gets; it is encoded again when that is not
// compact JSON.
func AuditResponse(t *audit.Record, res *server.Response, e *Encoder, sent []byte) {
	if t == nil {
		return
	}
	if st, isStatus := res.Object.(*metav1.Status); isStatus {
		t.SetStatus(st)
	}
	switch {
	case !t.WantsResponse() || res.Watch != nil:
	case len(sent) > audit.MaxBodies:
		t.SetTruncated()
	case len(sent) > 0 && e.Format.Media == codec.JSON && !e.Format.Pretty:
		t.SetResponseBody(bytes.Clone(sent))
	default:
		compact := *e
		compact.Format.Media, compact.Format.Pretty = codec.JSON, false
		var buf bytes.Buffer
		if err := compact.Response(&buf, res, nil); err == nil {
			t.SetResponseBody(buf.Bytes())
		}
	}
}

// AuditStatus adds the Status of a failed request to its audit record.
func AuditStatus(t *audit.Record, c *codec.Codec, st *metav1.Status) {
	if t == nil {
		return
	}
	t.SetStatus(st)
	if t.WantsResponse() {
		var buf bytes.Buffer
		if err := c.Append(&buf, codec.JSON, st); err == nil {
			t.SetResponseBody(buf.Bytes())
		}
	}
}
