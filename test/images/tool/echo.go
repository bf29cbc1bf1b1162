package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// echo answers with what came, on TCP and UDP.
func echo(ctx context.Context, out io.Writer, args []string) error {
	f := flags("echo")
	tcp := f.Int("tcp", 0, "the TCP port to listen on; 0 is none")
	udp := f.Int("udp", 0, "the UDP port to listen on; 0 is none")
	prefix := f.String("prefix", "", "what to answer before it")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *tcp == 0 && *udp == 0 {
		return errors.New("say which port to listen on: -tcp or -udp")
	}
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if *tcp != 0 {
		listener, err := net.Listen("tcp", ":"+strconv.Itoa(*tcp))
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "tcp on %s\n", listener.Addr())
		all.Go(func() { echoTCP(ctx, listener, *prefix) })
	}
	if *udp != 0 {
		conn, err := net.ListenPacket("udp", ":"+strconv.Itoa(*udp))
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "udp on %s\n", conn.LocalAddr())
		all.Go(func() { echoUDP(ctx, conn, *prefix) })
	}
	<-ctx.Done()
	return nil
}

func echoTCP(ctx context.Context, listener net.Listener, prefix string) {
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	var all sync.WaitGroup
	defer all.Wait()
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		all.Go(func() {
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			if _, err := io.WriteString(conn, prefix); err == nil {
				_, _ = io.Copy(conn, conn) // until the other side has enough
			}
		})
	}
}

func echoUDP(ctx context.Context, conn net.PacketConn, prefix string) {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	buffer := make([]byte, 64<<10)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		_, _ = conn.WriteTo(append([]byte(prefix), buffer[:n]...), from) // who does not listen gets no answer
	}
}

// send sends a text and prints what comes back: all that comes before the other
// side closes, or the first packet.
func send(ctx context.Context, out io.Writer, args []string) error {
	f := flags("send")
	timeout := f.Duration("timeout", 5*time.Second, "how long to wait")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() != 3 {
		return errors.New("say to whom and what: tcp|udp ADDRESS TEXT")
	}
	dialer := net.Dialer{Timeout: *timeout}
	conn, err := dialer.DialContext(ctx, f.Arg(0), f.Arg(1))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(*timeout)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, f.Arg(2)); err != nil {
		return err
	}
	if stream, ok := conn.(*net.TCPConn); ok {
		if err := stream.CloseWrite(); err != nil {
			return err
		}
		_, err := io.Copy(out, conn)
		return err
	}
	buffer := make([]byte, 64<<10)
	n, err := conn.Read(buffer)
	if err != nil {
		return err
	}
	_, err = out.Write(buffer[:n])
	return err
}
