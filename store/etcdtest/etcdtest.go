// Package etcdtest starts etcd's own server in the process of a test: to test clients of the store, and to test that
// etcd can read the data of an embedded store and the other way round.
package etcdtest

import (
	"errors"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/features"
	"go.uber.org/zap"
)

// waitLimit is how long a member may take to elect itself leader, for which it syncs its log.
const waitLimit = time.Minute

// Start starts a member on the data in dir and returns when it has elected itself leader. It makes a snapshot after
// every snapshotEvery writes. The caller stops it with HardStop.
func Start(t testing.TB, dir string, snapshotEvery uint64) *etcdserver.EtcdServer {
	t.Helper()
	server, err := start(dir, snapshotEvery)
	if err != nil {
		t.Fatal(err)
	}
	return server
}

func start(dir string, snapshotEvery uint64) (*etcdserver.EtcdServer, error) {
	peers := types.MustNewURLs([]string{"http://localhost:2380"})
	log := zap.NewNop()
	server, err := etcdserver.NewServer(config.ServerConfig{
		Name: "default", DataDir: dir, PeerURLs: peers, InitialPeerURLsMap: types.URLsMap{"default": peers},
		InitialClusterToken: "etcd-cluster", NewCluster: true,
		TickMs: 10, ElectionTicks: 2, PreVote: true, SnapshotCount: snapshotEvery, SnapshotCatchUpEntries: 10, MaxSnapFiles: 5,
		MaxWALFiles:         5,
		BackendFreelistType: bolt.FreelistMapType, MaxTxnOps: 128, MaxRequestBytes: 3 << 19, AuthToken: "simple", TokenTTL: 300,
		WarningApplyDuration: time.Second, WarningUnaryRequestDuration: time.Second, StrictReconfigCheck: true,
		Logger: log, ServerFeatureGate: features.NewDefaultServerFeatureGate("default", log),
	})
	if err != nil {
		return nil, err
	}
	server.Start()
	select {
	case <-server.ReadyNotify():
		return server, nil
	case <-server.StopNotify():
		return nil, errors.New("etcd stopped before it was ready")
	case <-time.After(waitLimit):
		server.HardStop()
		return nil, errors.New("etcd does not elect itself")
	}
}
