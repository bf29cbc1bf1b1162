package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"proa.dev/internal/wait"
)

// Handler handles requests. The namespace is nil if the runtime named none or it no longer exists; it is closed
// afterwards. A nil result is an empty response.
type Handler interface {
	CNI(ctx context.Context, req *Request, conf *Config, netns *os.File) (*Result, error)
}

// Listen opens the socket with access for its owner only. It replaces the socket of a process that was killed.
func Listen(path string) (*net.UnixListener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the CNI socket: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove the CNI socket of an earlier process: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for CNI requests: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("protect the CNI socket: %w", err), l.Close())
	}
	return l, nil
}

// Listener is the part of net.UnixListener that Serve needs.
type Listener interface {
	AcceptUnix() (*net.UnixConn, error)
	Close() error
}

// Serve handles requests until ctx ends or the listener is closed, and returns after the last one is finished. It goes on when a
// request cannot be accepted, for want of file descriptors for example: without the listener no Pod of the node can start or end.
func Serve(ctx context.Context, l Listener, h Handler, log *slog.Logger) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	retry := wait.Backoff{First: 5 * time.Millisecond, Max: time.Second}
	for {
		conn, err := l.AcceptUnix()
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept CNI requests: %w", err)
		case err != nil:
			log.Error("a CNI request cannot be accepted yet", "err", err)
			_ = retry.Sleep(ctx)
			continue
		}
		retry.Reset()
		wg.Go(func() {
			defer conn.Close()
			serve(ctx, conn, h, log)
		})
	}
}

func serve(ctx context.Context, conn *net.UnixConn, h Handler, log *slog.Logger) {
	start := time.Now()
	_ = conn.SetDeadline(start.Add(patience))
	req, conf, netns, err := receive(conn)
	if netns != nil {
		defer netns.Close()
	}
	var a answer
	if err == nil {
		a.Result, err = call(ctx, h, req, conf, netns)
	}
	if err != nil {
		a = answer{Error: asError(err)}
	}
	raw, _ := json.Marshal(a) // cannot fail: strings and raw JSON
	if _, err := conn.Write(raw); err != nil {
		log.Warn("the CNI program went away before its answer", "err", err)
	}
	if req != nil {
		log.Debug("cni", "command", req.Command, "container", req.ContainerID, "took", time.Since(start), "err", err)
	}
}

// call calls the handler and turns a panic into an error.
func call(ctx context.Context, h Handler, req *Request, conf *Config, netns *os.File) (raw json.RawMessage, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic while answering %s: %v", req.Command, p)
		}
	}()
	r, err := h.CNI(ctx, req, conf, netns)
	if err != nil || r == nil {
		return nil, err
	}
	return r.Encode(conf.CNIVersion)
}

func receive(conn *net.UnixConn) (*Request, *Config, *os.File, error) {
	first, oob := make([]byte, 1), make([]byte, syscall.CmsgSpace(4))
	_, n, _, _, err := conn.ReadMsgUnix(first, oob)
	if err != nil {
		return nil, nil, nil, Errorf(IOFailure, "read the request: %v", err)
	}
	netns := file(oob[:n])
	raw, err := io.ReadAll(io.LimitReader(conn, maxMessage))
	if err != nil {
		return nil, nil, netns, Errorf(IOFailure, "read the request: %v", err)
	}
	req := &Request{}
	if err := json.Unmarshal(raw, req); err != nil {
		return nil, nil, netns, Errorf(DecodeFailure, "decode the request: %v", err)
	}
	if err := req.check(); err != nil {
		return req, nil, netns, err
	}
	conf, err := ParseConfig(req.Config)
	return req, conf, netns, err
}

// file returns the namespace from the control message, or nil if none was sent.
func file(oob []byte) *os.File {
	msgs, err := syscall.ParseSocketControlMessage(oob)
	if err != nil || len(msgs) != 1 {
		return nil
	}
	fds, err := syscall.ParseUnixRights(&msgs[0])
	if err != nil || len(fds) != 1 {
		return nil
	}
	syscall.CloseOnExec(fds[0])
	return os.NewFile(uintptr(fds[0]), "netns")
}
