package h2

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"proa.dev/server/h2/h2wire"
)

// replayConn is a connection whose client has sent all its input before, and reads every response at once.
type replayConn struct {
	net.Conn // for its address
	io.Reader
}

func (r replayConn) Read(p []byte) (int, error)       { return r.Reader.Read(p) }
func (r replayConn) Write(p []byte) (int, error)      { return len(p), nil }
func (r replayConn) SetDeadline(time.Time) error      { return nil }
func (r replayConn) SetReadDeadline(time.Time) error  { return nil }
func (r replayConn) SetWriteDeadline(time.Time) error { return nil }

// echo responds with the body of the request.
func echo(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(w, r.Body)
	for name := range r.Trailer {
		w.Header()[http.TrailerPrefix+name] = r.Trailer[name]
	}
}

// encodeFrames returns the bytes of the frames that write sends. The function that write gets encodes header fields.
func encodeFrames(write func(*http2.Framer, func(...string) []byte)) []byte {
	var b, block bytes.Buffer
	f, e := http2.NewFramer(&b, nil), hpack.NewEncoder(&block)
	f.AllowIllegalWrites = true
	write(f, func(pairs ...string) []byte {
		block.Reset()
		for i := 0; i < len(pairs); i += 2 {
			_ = e.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
		}
		return bytes.Clone(block.Bytes())
	})
	return b.Bytes()
}

// FuzzConn checks that a connection and its handlers end, whatever its client sends.
func FuzzConn(f *testing.F) {
	post := []string{":method", "POST", ":scheme", "https", ":authority", "proa", ":path", "/"}
	head := func(id uint32, block []byte, end bool) http2.HeadersFrameParam {
		return http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: end}
	}
	f.Add(encodeFrames(func(f *http2.Framer, fields func(...string) []byte) {
		_ = f.WriteHeaders(head(1, fields(post...), true))
		_ = f.WriteHeaders(head(3, fields(append(post, "content-length", "4")...), false))
		_ = f.WriteDataPadded(3, false, []byte("da"), []byte{0, 0})
		_ = f.WriteRSTStream(1, http2.ErrCodeCancel)
		_ = f.WriteData(3, true, []byte("ta"))
	}))
	f.Add(encodeFrames(func(f *http2.Framer, fields func(...string) []byte) {
		_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0},
			http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0})
		_ = f.WriteHeaders(head(1, fields(append(post, "expect", "100-continue", "trailer", "x")...), false))
		_ = f.WriteData(1, false, []byte(strings.Repeat("data", 2000)))
		_ = f.WriteWindowUpdate(1, 10)
		_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 9000},
			http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 20})
		_ = f.WriteHeaders(head(1, fields("x", "y"), true))
		_ = f.WritePing(false, [8]byte{1})
	}))
	f.Add(encodeFrames(func(f *http2.Framer, fields func(...string) []byte) {
		b := fields(post...)
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b[:3], Priority: http2.PriorityParam{StreamDep: 3},
			PadLength: 2})
		_ = f.WriteContinuation(1, true, b[3:])
		_ = f.WritePriority(1, http2.PriorityParam{StreamDep: 1})
		_ = f.WriteWindowUpdate(0, 1<<31-1)
	}))
	f.Add(encodeFrames(func(f *http2.Framer, fields func(...string) []byte) {
		_ = f.WriteHeaders(head(1, fields(append(post, "content-length", "9", "cookie", "a", "cookie", "b", "host", "proa")...), false))
		_ = f.WriteData(1, false, []byte("part"))
		b := fields(append(post, "x", strings.Repeat("x", 5000))...)
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: b[:100], EndStream: true})
		_ = f.WriteContinuation(3, false, b[100:2000])
		_ = f.WriteContinuation(3, true, b[2000:])
		_ = f.WriteWindowUpdate(3, 1)
		_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1},
			http2.Setting{ID: http2.SettingInitialWindowSize, Val: 2})
		_ = f.WriteHeaders(head(1, fields("trailer", "x"), true))
	}))
	f.Add([]byte{})
	cfg := rawConfig()
	f.Fuzz(func(t *testing.T, input []byte) {
		settings := encodeFrames(func(f *http2.Framer, _ func(...string) []byte) { _ = f.WriteSettings() })
		clientEnd, serverEnd := net.Pipe() // only their addresses are used
		defer clientEnd.Close()
		defer serverEnd.Close()
		all := io.MultiReader(strings.NewReader(h2wire.Preface), bytes.NewReader(settings), bytes.NewReader(input))
		c := newConn(t.Context(), &cfg, replayConn{clientEnd, all}, nil, http.HandlerFunc(echo))
		done := make(chan error, 1)
		go func() { done <- c.run() }()
		select {
		case <-done:
		case <-time.After(testTimeout):
			t.Fatal("the connection does not end")
		}
		for end := time.Now().Add(testTimeout); ; time.Sleep(10 * time.Microsecond) {
			c.mu.Lock()
			running, streams := c.running, len(c.streams)
			c.mu.Unlock()
			if running == 0 && streams == 0 {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d handlers run, %d streams are open", running, streams)
			}
		}
	})
}

// FuzzHead checks that a request with any header fields is either refused or valid for a handler.
func FuzzHead(f *testing.F) {
	f.Add(":method\nGET\n:scheme\nhttps\n:authority\nproa\n:path\n/a?b=c\ncookie\na=b\ncookie\nc=d\ntrailer\nx, y")
	f.Add(":method\nCONNECT\n:authority\nproa:443")
	f.Add(":method\nPUT\n:scheme\nhttp\nhost\nproa\n:path\n*\ncontent-length\n5\nte\ntrailers\nx\n1\nx\n2")
	f.Add(":method\nGET\n:scheme\nhttps\n:authority\nproa\n:path\n/\nhost\nPROA\ncookie\na\ncookie\nb\ncookie\nc")
	f.Add("\n\n:\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		h, cache := h2wire.NewHeaderList(1<<10), h2wire.NameCache{}
		lines := strings.Split(text, "\n")
		for i := 0; i+1 < len(lines); i += 2 {
			h.Add(hpack.HeaderField{Name: lines[i], Value: lines[i+1]}, cache)
		}
		r, err := h.Request(t.Context(), "remote", nil)
		if err != nil {
			return
		}
		if r.URL == nil || r.Header == nil || r.Method == "" || r.Header.Get("Host") != "" || r.ContentLength < -1 {
			t.Errorf("got %+v", r)
		}
		size := len(r.Method) + len(r.Host)
		for name, values := range r.Header {
			if name != http.CanonicalHeaderKey(name) {
				t.Errorf("a field has the name %q", name)
			}
			for _, v := range values {
				size += len(name) + len(v)
				if strings.ContainsAny(v, "\r\n\x00") {
					t.Errorf("the value of %s is %q", name, v)
				}
			}
		}
		if size > 1<<10 {
			t.Errorf("got %d bytes, %d are allowed", size, 1<<10)
		}
	})
}
