package run_test

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/run/storeencryption"
	"proa.dev/store"
)

// TestSecretsKeyRotation rotates the key of Secrets, and checks with which key a Secret is stored before and after.
func TestSecretsKeyRotation(t *testing.T) {
	dir := t.TempDir()
	checkStoredPrefix := func(want string) {
		t.Helper()
		db, err := store.Embed(t.Context(), store.Config{Dir: filepath.Join(dir, "etcd"), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		p, _, err := db.Get(t.Context(), "/registry/secrets/default/s")
		if err != nil || !bytes.HasPrefix(p.Value, []byte(want)) {
			t.Errorf("the Secret is stored as %.40q, %v; want %s…", p.Value, err, want)
		}
	}
	c := proatest.Start(t, proatest.InDir(dir))
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}, StringData: map[string]string{"a": "b"}}
	if _, err := c.Client.Create(t.Context(), gr.Secrets, s); err != nil {
		t.Fatal(err)
	}
	c.Stop()
	checkStoredPrefix("k8s:enc:aesgcm:v1:key-")
	name, err := storeencryption.RotateKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	c = proatest.Start(t, proatest.InDir(dir))
	for deadline := time.After(time.Minute); ; {
		o, err := c.Client.Get(t.Context(), gr.StorageVersionMigrations, "", "secrets-"+name, "")
		if err == nil && meta.IsStatusConditionTrue(o.(*storagemigrationv1.StorageVersionMigration).Status.Conditions,
			string(storagemigrationv1.MigrationSucceeded)) {
			break
		}
		select {
		case <-deadline:
			t.Fatalf("the migration does not end: %v, %v", o, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	o, err := c.Client.Get(t.Context(), gr.Secrets, "default", "s", "")
	if err != nil || string(o.(*corev1.Secret).Data["a"]) != "b" {
		t.Errorf("the Secret is %v, %v", o, err)
	}
	c.Stop()
	checkStoredPrefix("k8s:enc:aesgcm:v1:" + name + ":")
}
