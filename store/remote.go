package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

const (
	// chunk bounds the pairs of one response, so that etcd does not have to hold a large list in one message.
	chunk = 10000
	// keepAlive and keepAliveTimeout detect a peer that has disappeared without closing the connection.
	keepAlive        = 10 * time.Second
	keepAliveTimeout = 5 * time.Second
	// connectTimeout bounds one attempt to connect, and maxReconnect the back-off before the next, so that the servers
	// work again soon after etcd does. gRPC's default back-off is up to two minutes.
	connectTimeout = 2 * time.Second
	// memberTimeout is how long one of several members may take to return the current revision before another member is
	// asked.
	memberTimeout = time.Second
	// freshTimeout is how long a linearizable read waits for the current revision of etcd.
	freshTimeout = 3 * time.Second
)

// anySize removes gRPC's limit on the size of a response. The size of a request is limited by etcd.
var anySize = grpc.MaxCallRecvMsgSize(math.MaxInt32)

// remote is an etcd in other processes, which may have other clients.
type remote struct {
	client *clientv3.Client
	kv     pb.KVClient
	lease  pb.LeaseClient
	watch  pb.WatchClient
	rounds revisionReader
}

// Dial connects to the etcd at cfg.Endpoints, and returns when etcd has answered a first request.
func Dial(ctx context.Context, cfg Config) (*Etcd, error) {
	cfg = cfg.withDefaults()
	r, err := dial(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to etcd at %v: %w", cfg.Endpoints, err)
	}
	return newEtcd(r, cfg), nil
}

func dial(ctx context.Context, cfg Config) (*remote, error) {
	if len(cfg.Endpoints) == 0 {
		return nil, errors.New("no endpoint given")
	}
	tlsConfig, err := clientTLS(cfg)
	if err != nil {
		return nil, err
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            cfg.Endpoints,
		TLS:                  tlsConfig,
		DialTimeout:          cfg.Timeout,
		DialKeepAliveTime:    keepAlive,
		DialKeepAliveTimeout: keepAliveTimeout,
		DialOptions:          []grpc.DialOption{grpc.WithConnectParams(connectParams())},
		Context:              context.WithoutCancel(ctx),
		Logger:               newZap(cfg.Log, &fatal{}),
	})
	if err != nil {
		return nil, err
	}
	r := &remote{
		client: client,
		kv:     clientv3.RetryKVClient(client),
		lease:  clientv3.RetryLeaseClient(client),
		watch:  pb.NewWatchClient(client.ActiveConnection()),
	}
	r.rounds.read, r.rounds.timeout = r.revision, min(cfg.Timeout, freshTimeout)
	ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	if _, err := r.revision(ctx); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return r, nil
}

// connectParams returns the back-off for reconnecting.
func connectParams() grpc.ConnectParams {
	return grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 5 * minReconnect, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxReconnect},
		MinConnectTimeout: connectTimeout,
	}
}

// clientTLS returns nil if no file is configured; whether TLS is used then depends on the endpoints.
func clientTLS(cfg Config) (*tls.Config, error) {
	if cfg.CAFile == "" && cfg.CertFile == "" && cfg.KeyFile == "" {
		return nil, nil
	}
	info := transport.TLSInfo{TrustedCAFile: cfg.CAFile, CertFile: cfg.CertFile, KeyFile: cfg.KeyFile}
	c, err := info.ClientConfig()
	if err != nil {
		return nil, err
	}
	c.MinVersion = tls.VersionTLS12
	return c, nil
}

func (r *remote) txn(ctx context.Context, req *pb.TxnRequest, _ bool) (*pb.TxnResponse, error) {
	return r.kv.Txn(ctx, req, anySize)
}

// read reads a span in chunks, all of them at the revision of the first.
func (r *remote) read(ctx context.Context, s span) (page, error) {
	var out page
	for {
		limit := int64(chunk)
		if left := s.limit - int64(len(out.kvs)); s.limit > 0 && left < limit {
			limit = left
		}
		resp, err := r.kv.Range(ctx, &pb.RangeRequest{Key: s.key, RangeEnd: s.end, Revision: s.rev, Limit: limit}, anySize)
		if err != nil {
			return page{}, err
		}
		if out.rev == 0 {
			out.rev, out.count = resp.Header.Revision, resp.Count
		}
		out.kvs = append(out.kvs, resp.Kvs...)
		if !resp.More || int64(len(out.kvs)) == s.limit {
			return out, nil
		}
		if s.rev == 0 {
			s.rev = out.rev
		}
		s.key = append(resp.Kvs[len(resp.Kvs)-1].Key, 0)
	}
}

func (r *remote) grant(ctx context.Context, ttl int64) (int64, error) {
	resp, err := r.lease.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: ttl})
	if err != nil {
		return 0, err
	}
	return resp.ID, nil
}

func (r *remote) compact(ctx context.Context, rev int64) error {
	_, err := r.kv.Compact(ctx, &pb.CompactionRequest{Revision: rev})
	return err
}

// revision returns the current revision of a quorum: the header of a linearizable read has a revision at least as high
// as that of every write that was acknowledged before.
func (r *remote) revision(ctx context.Context) (int64, error) {
	for {
		try, stop := ctx, context.CancelFunc(func() {})
		if len(r.client.Endpoints()) > 1 { // the next attempt goes to another member
			try, stop = context.WithTimeout(ctx, memberTimeout)
		}
		resp, err := r.kv.Range(try, &pb.RangeRequest{Key: []byte{0}, CountOnly: true})
		late := try.Err() != nil && ctx.Err() == nil
		stop()
		switch {
		case err == nil:
			return resp.Header.Revision, nil
		case !late:
			return 0, err
		}
	}
}

// fresh returns the current revision of etcd, since other clients may write, too.
func (r *remote) fresh(ctx context.Context, _ string) (int64, error) {
	ctx, stop := context.WithTimeout(ctx, freshTimeout)
	defer stop()
	return r.rounds.get(ctx)
}

func (r *remote) saw(string, int64)    {}
func (r *remote) sawAll(string, int64) {}
func (r *remote) shared() bool         { return true }

func (r *remote) healthy(ctx context.Context) error {
	alarms, err := r.client.AlarmList(ctx)
	if err != nil {
		return err
	}
	for _, a := range alarms.Alarms {
		return fmt.Errorf("etcd has raised the alarm %s", a.Alarm)
	}
	_, err = r.revision(ctx)
	return err
}

func (r *remote) room() error { return nil }

func (r *remote) size(ctx context.Context) (int64, error) {
	var errs []error
	for _, ep := range r.client.Endpoints() {
		st, err := r.client.Status(ctx, ep)
		if err == nil {
			return st.DbSize, nil
		}
		errs = append(errs, err)
	}
	return 0, errors.Join(errs...)
}

func (r *remote) snapshot(ctx context.Context, w io.Writer) error {
	rc, err := r.client.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer rc.Close()
	_, err = io.Copy(w, rc)
	return err
}

// interrupt ends the requests in progress, because etcd may never answer them.
func (r *remote) interrupt() { _ = r.client.Close() }

func (r *remote) close() error {
	if err := r.client.Close(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil // interrupt has closed the client before
}
