package store

import (
	"net"
	"testing"

	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"google.golang.org/grpc"

	"proa.dev/store/etcdtest"
	"proa.dev/store/storetest"
)

func TestEmbedded(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Store { return embed(t, t.TempDir()) })
}

func TestExternal(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Store {
		return connect(t, serve(t).addr)
	})
}

// outside is an etcd that is reached through a socket.
type outside struct {
	t    testing.TB
	etcd *etcdserver.EtcdServer
	grpc *grpc.Server
	addr string
	done chan error
}

// serve starts a member in this process and lets it listen.
func serve(t testing.TB) *outside {
	t.Helper()
	o := &outside{t: t, etcd: etcdtest.Start(t, t.TempDir(), etcdserver.DefaultSnapshotCount), addr: "127.0.0.1:0"}
	o.listen()
	t.Cleanup(func() {
		o.hangUp()
		o.etcd.HardStop()
	})
	return o
}

func (o *outside) listen() {
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

// hangUp breaks all connections and refuses new ones.
func (o *outside) hangUp() {
	o.grpc.Stop()
	<-o.done
}

func connect(t testing.TB, addr string) *Etcd {
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
