package store

import (
	"net"
	"testing"

	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"google.golang.org/grpc"

	"proa.dev/store/etcdtest"
	"proa.dev/store/storetest"
	"proa.dev/test/ports"
)

func TestEmbedded(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Store { return embed(t, t.TempDir()) })
}

func TestExternal(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Store {
		return connectTo(t, serveEtcd(t).addr)
	})
}

// externalEtcd is an etcd that is reached through a socket.
type externalEtcd struct {
	t    testing.TB
	etcd *etcdserver.EtcdServer
	grpc *grpc.Server
	addr string
	done chan error
}

// serveEtcd starts etcd's server in this process and serves its API on a socket.
func serveEtcd(t testing.TB) *externalEtcd {
	t.Helper()
	o := &externalEtcd{t: t, etcd: etcdtest.Start(t, t.TempDir(), etcdserver.DefaultSnapshotCount), addr: ports.Address(t)}
	o.listen()
	t.Cleanup(func() {
		o.closeConnections()
		o.etcd.HardStop()
	})
	return o
}

func (o *externalEtcd) listen() {
	o.t.Helper()
	lis, err := net.Listen("tcp", o.addr)
	if err != nil {
		o.t.Fatal(err)
	}
	o.addr = lis.Addr().String()
	o.grpc = v3rpc.Server(o.etcd, nil, nil)
	o.done = make(chan error, 1)
	go func() { o.done <- o.grpc.Serve(lis) }()
}

// closeConnections closes all connections and the listener, so that new ones are refused.
func (o *externalEtcd) closeConnections() {
	o.grpc.Stop()
	<-o.done
}

func connectTo(t testing.TB, addr string) *Etcd {
	t.Helper()
	e, err := Dial(t.Context(), Config{Endpoints: []string{"http://" + addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}
