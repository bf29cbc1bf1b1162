package persistentvolume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/control/lib/workload"
	"proa.dev/kinds/lib/gr"
)

const (
	// recyclerPrefix is the prefix of the names of recycler Pods, which empty volumes.
	recyclerPrefix = "recycler-for-"
	// recycledClaim is the annotation with the UID of the claim whose data a recycler Pod removes. It distinguishes the Pod from
	// one for an earlier claim.
	recycledClaim = "proa.dev/emptied-of"
)

// recycle empties a volume with a recycler Pod, so that another claim can be bound to it. The policy is deprecated, and only
// supported for hostPath and NFS volumes.
func (b *binder) recycle(ctx context.Context, c *control.Cluster, v *corev1.PersistentVolume) error {
	want := recyclerPod(v)
	if want == nil {
		return markFailed(ctx, c, v, "VolumeFailedRecycle", "No recycler plugin found for the volume!")
	}
	ref := v.Spec.ClaimRef
	if _, found := control.Get[*corev1.PersistentVolumeClaim](c, gr.PersistentVolumeClaims, ref.Namespace, ref.Name); !found {
		if users := podsUsing(c, ref.Namespace+"/"+ref.Name); len(users) > 0 {
			c.Event(v, corev1.EventTypeNormal, "VolumeFailedRecycle", "Volume is used by pods: %s", strings.Join(users, ","))
			return nil
		}
	}
	v, sure, err := checkReclaimable(ctx, c, v)
	if err != nil || !sure {
		return err
	}
	pod, found := control.Get[*corev1.Pod](c, gr.Pods, want.Namespace, want.Name)
	switch {
	case !found:
		if _, err := c.Create(ctx, gr.Pods, want); !apierrors.IsAlreadyExists(err) {
			return err
		}
		return errors.New("old recycler pod found, will retry later")
	case pod.DeletionTimestamp != nil:
		return nil // another one is created when its deletion has finished
	case !isRecycler(pod, want):
		return deletePod(ctx, c, pod)
	case pod.Status.Phase == corev1.PodSucceeded:
		if err := unbind(ctx, c, v); err != nil {
			return err
		}
		c.Event(v, corev1.EventTypeNormal, "VolumeRecycled", "Volume recycled")
		return deletePod(ctx, c, pod)
	case pod.Status.Phase == corev1.PodFailed:
		message := pod.Status.Message
		if message == "" {
			message = "pod failed, pod.Status.Message unknown"
		}
		if err := markFailed(ctx, c, v, "VolumeFailedRecycle", "Recycle failed: failed to recycle volume: "+message); err != nil {
			return err
		}
		b.mu.Lock()
		b.failed[v.Name] = time.Now()
		b.mu.Unlock()
		return deletePod(ctx, c, pod)
	}
	return nil
}

// recycleDelay returns the time until recycling a volume is retried after a failure.
func (b *binder) recycleDelay(volume string, now time.Time) time.Duration {
	const between = 15 * time.Second
	b.mu.Lock()
	defer b.mu.Unlock()
	left := between - now.Sub(b.failed[volume])
	if left <= 0 {
		delete(b.failed, volume)
	}
	return max(left, 0)
}

// deleteRecycler deletes the recycler Pod of a volume that is bound or available again.
func deleteRecycler(ctx context.Context, c *control.Cluster, v *corev1.PersistentVolume) error {
	pod, found := control.Get[*corev1.Pod](c, gr.Pods, metav1.NamespaceDefault, recyclerPrefix+v.Name)
	if !found || pod.DeletionTimestamp != nil || !isOwnedBy(pod, v.UID) {
		return nil
	}
	return deletePod(ctx, c, pod)
}

func isOwnedBy(pod *corev1.Pod, uid types.UID) bool {
	return slices.ContainsFunc(pod.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == uid })
}

func deletePod(ctx context.Context, c *control.Cluster, pod *corev1.Pod) error {
	return control.IgnoreNotFound(c.Delete(ctx, gr.Pods, pod.Namespace, pod.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}))
}

// isRecycler reports whether a Pod is the recycler Pod of a volume, and not another with the same name.
func isRecycler(pod, want *corev1.Pod) bool {
	if len(pod.Spec.Containers) != 1 || len(pod.Spec.Volumes) == 0 || !isOwnedBy(pod, want.OwnerReferences[0].UID) ||
		pod.Annotations[recycledClaim] != want.Annotations[recycledClaim] {
		return false
	}
	has, wants := pod.Spec.Containers[0], want.Spec.Containers[0]
	source := pod.Spec.Volumes[0].VolumeSource.DeepCopy()
	if source.HostPath != nil {
		source.HostPath.Type = nil // filled in by the server
	}
	return has.Image == wants.Image && slices.Equal(has.Command, wants.Command) && slices.Equal(has.Args, wants.Args) &&
		apiequality.Semantic.DeepEqual(*source, want.Spec.Volumes[0].VolumeSource)
}

// recyclerPod returns the recycler Pod of a volume; nil if volumes of its type cannot be recycled.
func recyclerPod(v *corev1.PersistentVolume) *corev1.Pod {
	var source corev1.VolumeSource
	var minimum int64
	switch s := v.Spec; {
	case s.HostPath != nil:
		source.HostPath, minimum = &corev1.HostPathVolumeSource{Path: s.HostPath.Path}, 60
	case s.NFS != nil:
		source.NFS, minimum = &corev1.NFSVolumeSource{Server: s.NFS.Server, Path: s.NFS.Path, ReadOnly: s.NFS.ReadOnly}, 300
	default:
		return nil
	}
	size := v.Spec.Capacity[corev1.ResourceStorage]
	limit := max(size.Value()>>30*30, minimum)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: recyclerPrefix + v.Name,
			Annotations:     map[string]string{recycledClaim: string(v.Spec.ClaimRef.UID)},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolume", Name: v.Name, UID: v.UID}},
		},
		Spec: corev1.PodSpec{
			ActiveDeadlineSeconds: &limit, RestartPolicy: corev1.RestartPolicyNever,
			Volumes: []corev1.Volume{{Name: "vol", VolumeSource: source}},
			Containers: []corev1.Container{{
				Name: "pv-recycler", Image: "registry.k8s.io/build-image/debian-base:bookworm-v1.0.6", Command: []string{"/bin/sh"},
				Args:         []string{"-c", `test -e /scrub && find /scrub -mindepth 1 -delete && test -z "$(ls -A /scrub)" || exit 1`},
				VolumeMounts: []corev1.VolumeMount{{Name: "vol", MountPath: "/scrub"}},
			}},
		},
	}
}

// podsUsing returns the Pods that use a claim and have not ended.
func podsUsing(c *control.Cluster, claim string) (names []string) {
	for p := range control.By[*corev1.Pod](c, gr.Pods, client.ByClaim(), claim) {
		if !workload.IsTerminal(p) {
			names = append(names, fmt.Sprintf("%s/%s", p.Namespace, p.Name))
		}
	}
	return names
}
