package run

import (
	"context"
	"path/filepath"

	"proa.dev/kv"
	"proa.dev/run/clusterrecord"
	"proa.dev/run/datafolder"
	"proa.dev/run/pki"
	"proa.dev/run/storeencryption"
)

// secretsKeys is the name of the keys of Secrets in the record of a cluster.
const secretsKeys = "secrets-key"

// sharesStore tells whether other servers may use the store.
func (s *Server) sharesStore() bool { return len(s.EtcdServers) > 0 }

// clusterRecord returns what this server must have in common with those that share its store, from its files and settings.
func (s *Server) clusterRecord() *clusterrecord.Record {
	r := &clusterrecord.Record{
		Version: datafolder.ThisVersion(), Keys: pki.Fingerprints(filepath.Join(s.DataDir, "pki")), Settings: s.RecordedSettings(),
	}
	if s.Encryption == "" { // otherwise a file of the administrator's has the keys
		r.Keys[secretsKeys] = storeencryption.Fingerprints(s.DataDir)
	}
	return r
}

// checkClusterRecord refuses a shared store whose cluster has other keys or settings, before this server has made keys of
// its own or written anything. empty tells that no cluster has begun in the store.
func (s *Server) checkClusterRecord(ctx context.Context) (empty bool, err error) {
	if !s.sharesStore() {
		return false, nil
	}
	have, rev, err := clusterrecord.Read(ctx, s.store)
	if err != nil {
		return false, err
	}
	if rev != 0 {
		return false, have.Check(s.clusterRecord(), s.ClusterChanges)
	}
	page, err := s.store.List(ctx, kv.Range{Prefix: "/registry/", Limit: 1, Uncounted: true})
	return err == nil && len(page.Pairs) == 0, err
}

// openKeys loads or creates the keys and certificates of the cluster, unless the store is that of a cluster with others. empty tells
// that no cluster has begun in a shared store.
func (s *Server) openKeys(ctx context.Context) (empty bool, err error) {
	if empty, err = s.checkClusterRecord(ctx); err != nil {
		return false, err
	}
	return empty, s.openPKI(ctx)
}

// openEncryption opens the keys of the store, and joins the cluster with them before anything is stored. empty tells that no
// cluster has begun in a shared store.
func (s *Server) openEncryption(ctx context.Context, empty bool) (err error) {
	s.encryption, err = storeencryption.Open(ctx, storeencryption.Config{
		Store: s.store, DataDir: s.DataDir, File: s.Encryption, Shared: s.sharesStore(), Empty: empty, Resources: s.builtIn, Log: s.log,
		Recovered: func() { s.state.RereadUnreadable() },
	})
	if err != nil {
		return err
	}
	return s.joinCluster(ctx, s.ClusterChanges...)
}

// joinCluster records the keys and settings of this server in a shared store. It is an error if servers of the cluster have
// others, except for those that changes names.
func (s *Server) joinCluster(ctx context.Context, changes ...string) error {
	if !s.sharesStore() {
		return nil
	}
	return clusterrecord.Join(ctx, s.store, s.clusterRecord(), changes)
}
