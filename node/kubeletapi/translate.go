package kubeletapi

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"proa.dev/kinds/lib/streamoptions"
)

// The channels of the WebSocket protocol v5.
const (
	channelStdin = iota
	channelStdout
	channelStderr
	channelError
	channelResize
	channels

	protocolV5 = "v5.channel.k8s.io"
	protocolV4 = "v4.channel.k8s.io" // the SPDY protocol, in which a single stream can be closed
)

// idleTimeout is the idle timeout of streams.
const idleTimeout = 4 * time.Hour

// translate connects the channels of a WebSocket with the SPDY streams of the runtime.
func translate(w http.ResponseWriter, r *http.Request, to *url.URL, o streamoptions.Command) {
	reads := func(on bool) wsstream.ChannelType {
		if on {
			return wsstream.ReadChannel
		}
		return wsstream.IgnoreChannel
	}
	writes := func(on bool) wsstream.ChannelType {
		if on {
			return wsstream.WriteChannel
		}
		return wsstream.IgnoreChannel
	}
	ws := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{protocolV5: {Binary: true, Channels: []wsstream.ChannelType{
		reads(o.Stdin), writes(o.Stdout), writes(o.Stderr), wsstream.WriteChannel, wsstream.ReadChannel,
	}}})
	ws.SetIdleTimeout(idleTimeout)
	_, ch, err := ws.Open(w, r)
	if err != nil {
		return // the client has its answer
	}
	defer func() { _ = ws.Close() }()
	// An empty message tells the client that the streams are open.
	first := channelError
	switch {
	case o.Stdout:
		first = channelStdout
	case o.Stderr:
		first = channelStderr
	}
	if _, err := ch[first].Write(nil); err != nil {
		return
	}
	status, err := run(r.Context(), to, o, [channels]io.ReadWriteCloser(ch))
	if err != nil {
		status, _ = json.Marshal(apierrors.NewInternalError(err).Status()) // cannot fail
	}
	ws.SetWriteDeadline(10 * time.Second)
	_, _ = ch[channelError].Write(status) // fails if the client has disconnected
}

// run connects the channels with the streams of the runtime until the command has ended, and returns its status as the
// runtime formats it.
func run(ctx context.Context, to *url.URL, o streamoptions.Command, ch [channels]io.ReadWriteCloser) ([]byte, error) {
	conn, err := dialSPDY(ctx, to)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	open := func(name string) (httpstream.Stream, error) {
		return conn.CreateStream(http.Header{"Streamtype": {name}})
	}
	// All streams are opened before anything is sent. The runtime reads none before it has all of them, so input in
	// flight would block the opening of the streams behind it.
	status, err := open("error")
	if err != nil {
		return nil, err
	}
	var in, stdout, stderr, resize httpstream.Stream
	for _, s := range []struct {
		name   string
		wanted bool
		stream *httpstream.Stream
	}{{"stdin", o.Stdin, &in}, {"stdout", o.Stdout, &stdout}, {"stderr", o.Stderr, &stderr}, {"resize", o.TTY, &resize}} {
		if !s.wanted {
			continue
		}
		if *s.stream, err = open(s.name); err != nil {
			return nil, err
		}
	}
	if in != nil {
		go func() { // ends when the client closes the channel, or with either connection
			_, _ = io.Copy(in, ch[channelStdin])
			_ = in.Close()
		}()
		go func() { _, _ = io.Copy(io.Discard, in) }() // no data arrives, but the end of the stream must be read
	}
	size := io.Writer(io.Discard)
	if resize != nil {
		size = resize
	}
	go func() { // the client closes this channel only with the connection
		_, _ = io.Copy(size, ch[channelResize])
		_ = conn.Close()
	}()
	var outputs sync.WaitGroup
	outputs.Go(func() { passOutput(ch[channelStdout], stdout) })
	outputs.Go(func() { passOutput(ch[channelStderr], stderr) })
	outputs.Wait()
	return io.ReadAll(io.LimitReader(status, 1<<20))
}

// passOutput copies a stream of the command to its channel until it ends, or the client has disconnected; from is nil
// if the client does not want it.
func passOutput(to io.Writer, from httpstream.Stream) {
	if from == nil {
		return
	}
	if _, err := io.Copy(to, from); err != nil {
		_ = from.Reset()
	}
}

// dialSPDY opens a connection to the runtime's streaming server for one command.
func dialSPDY(ctx context.Context, to *url.URL) (httpstream.Connection, error) {
	rt, err := spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{UpgradeTransport: &http.Transport{}, PingPeriod: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set(httpstream.HeaderProtocolVersion, protocolV4)
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	return rt.NewConnection(resp)
}
