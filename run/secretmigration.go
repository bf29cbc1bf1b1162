package run

import (
	"context"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/lib/gr"
	"proa.dev/server/localclient"
)

// reloadEncryption uses keys of the store that have changed, and has Secrets that are encrypted with another key written again.
func (s *Server) reloadEncryption(ctx context.Context) error {
	if err := s.encryption.Reload(ctx); err != nil {
		return err
	}
	s.state.RereadUnreadable()
	if err := s.joinCluster(ctx, secretsKeys); err != nil { // the administrator has changed the file on purpose
		return err
	}
	return s.migrateSecrets(ctx)
}

// migrateSecrets creates a StorageVersionMigration of Secrets if there is more than one key. It is named after the newest key, so that
// it is created once for each key.
func (s *Server) migrateSecrets(ctx context.Context) error {
	key, err := s.encryption.KeyToMigrateTo()
	if err != nil || key == "" {
		return err
	}
	m := &storagemigrationv1.StorageVersionMigration{ObjectMeta: metav1.ObjectMeta{Name: "secrets-" + key}}
	m.Spec.Resource = metav1.GroupResource{Resource: gr.Secrets.Resource}
	_, err = localclient.New(s.pipeline, apiserver()).Create(ctx, gr.StorageVersionMigrations, m)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
