package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// What a health check can be answered, as grpc.health.v1 counts.
const (
	statusServing    = 1
	statusNotServing = 2
)

// The gRPC codes that are used here.
const (
	codeOK            = "0"
	codeNotFound      = "5"
	codeInternal      = "13"
	codeUnimplemented = "12"
)

// health answers the checks of grpc.health.v1. The whole of that protocol is a
// frame with one text in it and a frame with one number as the answer, so
// HTTP/2 of the standard library is enough.
func health(ctx context.Context, out io.Writer, args []string) error {
	f := flags("health")
	port := f.Int("port", 50051, "the port to listen on")
	service := f.String("service", "", "the service that is known besides the empty one")
	down := f.Bool("down", false, "begin not serving")
	downAfter := f.Duration("down-after", 0, "stop serving after this while")
	if err := f.Parse(args); err != nil {
		return err
	}
	start := time.Now()
	status := func() byte {
		if *down || *downAfter > 0 && time.Since(start) > *downAfter {
			return statusNotServing
		}
		return statusServing
	}
	listener, err := net.Listen("tcp", ":"+strconv.Itoa(*port))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: checks(out, *service, status), Protocols: &http.Protocols{}, ReadHeaderTimeout: time.Minute}
	server.Protocols.SetUnencryptedHTTP2(true)
	defer context.AfterFunc(ctx, func() { server.Close() })()
	fmt.Fprintf(out, "gRPC health on %s\n", listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func checks(out io.Writer, service string, status func() byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
		end := func(code, text string) {
			w.Header().Set("Grpc-Status", code)
			w.Header().Set("Grpc-Message", text)
		}
		if r.URL.Path != "/grpc.health.v1.Health/Check" {
			end(codeUnimplemented, "only Check is here")
			return
		}
		asked, err := readCheck(io.LimitReader(r.Body, 4096))
		if err != nil {
			end(codeInternal, err.Error())
			return
		}
		fmt.Fprintf(out, "check of %q\n", asked)
		if asked != "" && asked != service {
			end(codeNotFound, "unknown service")
			return
		}
		// A frame: not compressed, two bytes long; field 1 has the status.
		_, _ = w.Write([]byte{0, 0, 0, 0, 2, 1 << 3, status()})
		end(codeOK, "")
	})
}

// readCheck reads the frame of a check and gives the service that it asks for.
func readCheck(from io.Reader) (string, error) {
	data, err := io.ReadAll(from)
	if err != nil {
		return "", err
	}
	if len(data) < 5 || data[0] != 0 || int(binary.BigEndian.Uint32(data[1:5])) != len(data)-5 {
		return "", errors.New("the frame is cut off, too long or compressed")
	}
	data = data[5:]
	if len(data) == 0 {
		return "", nil
	}
	const service = 1<<3 | 2 // field 1, bytes
	n, used := binary.Uvarint(data[1:])
	if data[0] != service || used <= 0 || n != uint64(len(data)-1-used) {
		return "", errors.New("the message is not a HealthCheckRequest")
	}
	return strings.ToValidUTF8(string(data[1+used:]), "?"), nil
}
