package kubeletapi

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"proa.dev/kinds/lib/streamoptions"
)

// channel is one of the channels to a client.
type channel struct {
	io.Reader
	io.Writer
}

func (channel) Close() error { return nil }

// TestInputWaitsForAllStreams sends much input to a runtime that, like containerd, reads nothing before all streams are open.
func TestInputWaitsForAllStreams(t *testing.T) {
	runtime := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set(httpstream.HeaderProtocolVersion, protocolV4)
		all := make(chan httpstream.Stream, 4)
		conn := spdy.NewResponseUpgrader().UpgradeResponse(w, req, func(s httpstream.Stream, _ <-chan struct{}) error {
			if name := s.Headers().Get("Streamtype"); name == "stdout" || name == "stderr" {
				time.Sleep(100 * time.Millisecond) // long enough for input that is sent too early to arrive
			}
			all <- s
			return nil
		})
		defer conn.Close()
		streams := map[string]httpstream.Stream{}
		for range cap(all) {
			select {
			case s := <-all:
				streams[s.Headers().Get("Streamtype")] = s
			case <-conn.CloseChan():
				return
			}
		}
		_, _ = io.Copy(streams["stdout"], streams["stdin"])
		for _, name := range []string{"stdout", "stderr", "error"} {
			_ = streams[name].Close()
		}
		<-conn.CloseChan()
	}))
	defer runtime.Close()
	to, err := url.Parse(runtime.URL)
	if err != nil {
		t.Fatal(err)
	}
	sent := bytes.Repeat([]byte("words\n"), 1<<20)
	var got bytes.Buffer
	blocked, end := io.Pipe()
	defer end.Close()
	ch := [channels]io.ReadWriteCloser{
		channelStdin: channel{io.LimitReader(bytes.NewReader(sent), int64(len(sent))), io.Discard}, channelStdout: channel{blocked, &got},
		channelStderr: channel{blocked, io.Discard}, channelError: channel{blocked, io.Discard},
		channelResize: channel{blocked, io.Discard},
	}
	done := make(chan error, 1)
	go func() {
		_, err := run(t.Context(), to, streamoptions.Command{Stdin: true, Stdout: true, Stderr: true}, ch)
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil || !bytes.Equal(got.Bytes(), sent) {
			t.Fatalf("%d bytes of %d came back: %v", got.Len(), len(sent), err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the command hangs: its input blocks its other streams")
	}
}
