package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/internal/wait"
	"proa.dev/kinds/lib/gr"
	"proa.dev/kinds/lib/localvolume"
	"proa.dev/node/volume/mounts"
)

// localRetry is how long to wait before another attempt to remove a folder.
const localRetry = 10 * time.Second

// localDir returns the folder of the local-path volumes of this node.
func (v *Volumes) localDir() string { return filepath.Join(v.Dir, "local-path") }

// localSource returns the path of a local volume on this node. The folders of volumes that the built-in provisioner
// made for this node are in the agent's own data folder, wherever that is now: a path that was written before the data
// folder was moved, or restored elsewhere, may be that of another cluster's volume. Such a folder is made when it is
// first used. Volumes of other provisioners are where they say.
func (v *Volumes) localSource(pv *corev1.PersistentVolume) (string, error) {
	written := pv.Spec.Local.Path
	if !v.isProvisioned(pv) {
		return written, nil
	}
	own := filepath.Join(v.localDir(), pv.Name)
	if written != own && !exists(own) && exists(written) {
		return "", fmt.Errorf("volume %s is in %s, which is not in the data folder of this node; if it belongs to this cluster, move it to %s with the cluster stopped", pv.Name, written, own)
	}
	if err := os.MkdirAll(v.localDir(), 0o711); err != nil { //nolint:gosec // G301: processes of Pods pass through it
		return "", err
	}
	err := os.Mkdir(own, 0o777) //nolint:gosec // G301: it is for the processes of Pods, whoever they are
	if errors.Is(err, fs.ErrExist) {
		return own, nil
	}
	if err != nil {
		return "", err
	}
	return own, os.Chmod(own, 0o777) //nolint:gosec // G302: it is for the processes of Pods, whatever the umask
}

// isProvisioned reports whether the built-in provisioner made a volume for this node: it is annotated so, and its path
// has the form that the provisioner uses.
func (v *Volumes) isProvisioned(pv *corev1.PersistentVolume) bool {
	folder, name := filepath.Split(pv.Spec.Local.Path)
	if pv.Annotations[localvolume.ProvisionedByAnnotation] != localvolume.Provisioner || name != pv.Name {
		return false
	}
	if node := pv.Annotations[localvolume.NodeAnnotation]; node != "" && node != v.Node {
		return false
	}
	return filepath.Base(folder) == filepath.Base(v.localDir())
}

// RunLocalPath publishes on the Node object where this agent keeps local-path volumes, and removes the folders of deleted
// volumes, until ctx ends. The Node may be created later.
func (v *Volumes) RunLocalPath(ctx context.Context) error {
	view, err := v.Client.Part(ctx, gr.Nodes, client.Scope{Name: v.Node})
	if err != nil {
		return fmt.Errorf("watch the node %s: %w", v.Node, err)
	}
	again := wait.NewSignal()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range view.Events(ctx) {
			again.Send()
		}
	}()
	retry := time.AfterFunc(localRetry, again.Send)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			<-done
			return nil
		case <-again:
		}
		retry.Stop()
		if err := v.reconcileLocal(ctx, view); err != nil && ctx.Err() == nil {
			if !apierrors.IsConflict(err) { // then an event follows
				v.Log.WarnContext(ctx, "the folder of a volume cannot be removed yet", "err", err)
			}
			retry.Reset(localRetry)
		}
	}
}

// reconcileLocal publishes the folder and removes the volumes that the Node object asks to remove.
func (v *Volumes) reconcileLocal(ctx context.Context, view client.View) error {
	o, found := view.Get("", v.Node)
	seen, ok := o.(*corev1.Node)
	if !found || !ok {
		return nil
	}
	node, changed := seen.DeepCopy(), false
	if node.Annotations[localvolume.FolderAnnotation] != v.localDir() {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, localvolume.FolderAnnotation, v.localDir())
		changed = true
	}
	work := localvolume.WorkOf(node)
	var errs []error
	for name, state := range work {
		if state != localvolume.Remove {
			continue
		}
		if err := v.removeLocal(name); err != nil {
			errs = append(errs, err)
			continue
		}
		work[name], changed = localvolume.Removed, true
	}
	if changed {
		localvolume.SetWork(node, work)
		_, err := v.Client.Update(ctx, gr.Nodes, node, "")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// removeLocal removes the folder of a volume, unless a Pod still uses it.
func (v *Volumes) removeLocal(name string) error {
	if !isFileName(name) {
		return fmt.Errorf("%q is no name of a volume", name)
	}
	users, err := filepath.Glob(filepath.Join(v.Dir, "pods", "*", "volumes", escapePluginName(pluginLocal), name))
	if err != nil {
		return err
	}
	if len(users) > 0 {
		return fmt.Errorf("volume %s is still mounted at %s", name, users[0])
	}
	return mounts.Remove(filepath.Join(v.localDir(), name))
}
