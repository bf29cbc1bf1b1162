package controllers

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/control/persistentvolume"
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/run"
)

// TestVolumesConcurrentClaims creates many claims concurrently, and as many volumes that fit all of them, and checks that each claim
// gets its own volume.
func TestVolumesConcurrentClaims(t *testing.T) {
	t.Parallel()
	const count = 200
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cluster := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir), func(c *run.Config) {
			c.FilterControllers = func([]control.Controller) []control.Controller { return nil }
		})
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for _, ctl := range persistentvolume.Controllers(persistentvolume.Config{}) {
			wg.Go(func() {
				if err := control.Run(ctx, slog.New(slog.DiscardHandler), cluster.Client, ctl, nil); err != nil {
					t.Error(err)
				}
			})
		}
		size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		for i := range count {
			v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("v%d", i)},
				Spec: corev1.PersistentVolumeSpec{Capacity: size, AccessModes: modes}}
			v.Spec.HostPath = &corev1.HostPathVolumeSource{Path: "/data"}
			if _, err := cluster.Client.Create(ctx, gr.PersistentVolumes, v); err != nil {
				t.Fatal(err)
			}
			c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("c%d", i)}}
			c.Spec.AccessModes, c.Spec.Resources.Requests = modes, size
			if _, err := cluster.Client.Create(ctx, gr.PersistentVolumeClaims, c); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		checkBindings(t, cluster, count)
		stop()
		wg.Wait()
		cluster.Stop()
	})
}

// checkBindings checks that every claim is bound to its own volume, whose claimRef names it.
func checkBindings(t *testing.T, cluster *proatest.Cluster, count int) {
	claims, err := cluster.Client.View(t.Context(), gr.PersistentVolumeClaims)
	if err != nil {
		t.Fatal(err)
	}
	volumes, err := cluster.Client.View(t.Context(), gr.PersistentVolumes)
	if err != nil {
		t.Fatal(err)
	}
	bound := 0
	for o := range claims.List("") {
		c := o.(*corev1.PersistentVolumeClaim)
		v, found := volumes.Get("", c.Spec.VolumeName)
		if !found || c.Status.Phase != corev1.ClaimBound {
			t.Errorf("claim %s is %s, with volume %q", c.Name, c.Status.Phase, c.Spec.VolumeName)
			continue
		}
		if ref := v.(*corev1.PersistentVolume).Spec.ClaimRef; ref == nil || ref.UID != c.UID {
			t.Errorf("volume %s of claim %s points at %+v", v.GetName(), c.Name, ref)
		}
		bound++
	}
	for o := range volumes.List("") {
		if v := o.(*corev1.PersistentVolume); v.Status.Phase != corev1.VolumeBound {
			t.Errorf("volume %s is %s", v.Name, v.Status.Phase)
		}
	}
	if bound != count {
		t.Errorf("%d of %d claims are bound", bound, count)
	}
}
