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
	// freshTimeout is how long a linearizable read waits for the current revision of etcd.
	freshTimeout = 3 * time.Second
)

// anySize removes gRPC's limit on the size of a response. The size of a request is limited by etcd.
var anySize = grpc.MaxCallRecvMsgSize(math.MaxInt32)

// remote is an etcd in other processes, which may have other clients. Its requests go to one member at a time; see endpoints.
type remote struct {
	*endpoints
	rounds revisionReader
	// stop ends run of the endpoints, and stopped is closed when it has ended.
	stop    context.CancelFunc
	stopped chan struct{}
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
	var all []*endpoint
	for _, url := range cfg.Endpoints {
		client, err := clientv3.New(clientv3.Config{
			Endpoints:            []string{url},
			TLS:                  tlsConfig,
			DialTimeout:          cfg.Timeout,
			DialKeepAliveTime:    keepAlive,
			DialKeepAliveTimeout: keepAliveTimeout,
			DialOptions:          []grpc.DialOption{grpc.WithConnectParams(connectParams())},
			Context:              context.WithoutCancel(ctx),
			Logger:               newZap(cfg.Log, &fatal{}),
		})
		if err != nil {
			return nil, errors.Join(err, closeAll(all))
		}
		conn := client.ActiveConnection()
		all = append(all, &endpoint{url: url, client: client, kv: pb.NewKVClient(conn), lease: pb.NewLeaseClient(conn),
			watch: pb.NewWatchClient(conn)})
	}
	r := &remote{endpoints: newEndpoints(cfg.Log, all...), stopped: make(chan struct{})}
	r.rounds.read, r.rounds.timeout = r.revision, min(cfg.Timeout, freshTimeout)
	var running context.Context
	running, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(r.stopped)
		r.run(running)
	}()
	ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	if _, err := r.revision(ctx); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// closeAll closes the connections of endpoints; those that are closed already are no error.
func closeAll(all []*endpoint) (err error) {
	for _, e := range all {
		if bad := e.client.Close(); !errors.Is(bad, context.Canceled) {
			err = errors.Join(err, bad)
		}
	}
	return err
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

func (r *remote) txn(ctx context.Context, req *pb.TxnRequest, _ bool) (resp *pb.TxnResponse, err error) {
	err = r.do(ctx, conditional, func(ctx context.Context, at *endpoint) error {
		resp, err = at.kv.Txn(ctx, req, anySize)
		return err
	})
	return resp, err
}

// get makes a read, of which the answer is the same at every member.
func (r *remote) get(ctx context.Context, req *pb.RangeRequest) (resp *pb.RangeResponse, err error) {
	err = r.do(ctx, repeatable, func(ctx context.Context, at *endpoint) error {
		resp, err = at.kv.Range(ctx, req, anySize)
		return err
	})
	return resp, err
}

// read reads a span in chunks, all of them at the revision of the first.
func (r *remote) read(ctx context.Context, s span) (page, error) {
	var out page
	for {
		limit := int64(chunk)
		if left := s.limit - int64(len(out.kvs)); s.limit > 0 && left < limit {
			limit = left
		}
		resp, err := r.get(ctx, &pb.RangeRequest{Key: s.key, RangeEnd: s.end, Revision: s.rev, Limit: limit})
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

func (r *remote) grant(ctx context.Context, ttl int64) (id int64, err error) {
	err = r.do(ctx, repeatable, func(ctx context.Context, at *endpoint) error {
		resp, err := at.lease.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: ttl})
		id = resp.GetID()
		return err
	})
	return id, err
}

func (r *remote) compact(ctx context.Context, rev int64) error {
	return r.do(ctx, conditional, func(ctx context.Context, at *endpoint) error {
		_, err := at.kv.Compact(ctx, &pb.CompactionRequest{Revision: rev})
		return err
	})
}

// revision returns the current revision of a quorum: the header of a linearizable read has a revision at least as high
// as that of every write that was acknowledged before.
func (r *remote) revision(ctx context.Context) (int64, error) {
	resp, err := r.get(ctx, &pb.RangeRequest{Key: []byte{0}, CountOnly: true})
	if err != nil {
		return 0, err
	}
	return resp.Header.Revision, nil
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
	var alarms *clientv3.AlarmResponse
	err := r.do(ctx, repeatable, func(ctx context.Context, at *endpoint) (err error) {
		alarms, err = at.client.AlarmList(ctx)
		return err
	})
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

func (r *remote) size(ctx context.Context) (n int64, err error) {
	err = r.do(ctx, repeatable, func(ctx context.Context, at *endpoint) error {
		st, err := at.client.Status(ctx, at.url)
		if err == nil {
			n = st.DbSize
		}
		return err
	})
	return n, err
}

func (r *remote) snapshot(ctx context.Context, w io.Writer) error {
	rc, err := r.inUse.Load().client.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer rc.Close()
	_, err = io.Copy(w, rc)
	return err
}

// interrupt ends the requests in progress, because etcd may never answer them.
func (r *remote) interrupt() {
	r.stop()
	_ = closeAll(r.all)
}

func (r *remote) close() error {
	r.stop()
	<-r.stopped
	return closeAll(r.all)
}
