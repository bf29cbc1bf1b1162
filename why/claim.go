package why

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"proa.dev/hop"
	"proa.dev/kinds/lib/gr"
	"proa.dev/why/answer"
	"proa.dev/why/lookup"
)

// claim explains a PersistentVolumeClaim.
func (r *reader) claim(ctx context.Context, t Target) (*Answer, error) {
	c, err := lookup.Load[corev1.PersistentVolumeClaim](ctx, r.Reader, gr.PersistentVolumeClaims, t.Namespace, t.Name)
	if err != nil {
		return nil, err
	}
	return r.explainClaim(ctx, c), nil
}

func (r *reader) explainClaim(ctx context.Context, c *corev1.PersistentVolumeClaim) *Answer {
	a := (&Answer{Object: Ref{Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name}, State: Stuck}).At(hop.Control)
	switch {
	case c.DeletionTimestamp != nil:
		return r.claimEnding(ctx, c, a)
	case c.Status.Phase == corev1.ClaimBound:
		return r.claimBound(ctx, c, a)
	case c.Status.Phase == corev1.ClaimLost:
		a.Cause = "The volume " + c.Spec.VolumeName + " of the claim no longer exists; what was on it is lost with it."
		return a.Because(a.Object, "spec.volumeName", c.Spec.VolumeName, time.Time{}).Do("delete the claim and create it again, or restore the volume from a backup")
	}
	a.Because(a.Object, "status.phase", string(c.Status.Phase), time.Time{})
	events := r.Events(ctx, c.Namespace, c.UID)
	if e := lookup.Latest(events, "ProvisioningFailed", "FailedBinding", "VolumeMismatch"); e != nil && e.Reason != "FailedBinding" {
		a.Cause = "No volume can be made for the claim: " + answer.Sentence(e.Message) + "."
		if strings.Contains(e.Message, "storageclass") && strings.Contains(e.Message, "not found") {
			a.Do("kubectl get storageclass shows those that there are")
		}
		return a.Because(a.Object, "event "+e.Reason, e.Message, e.Time)
	}
	return r.claimClass(ctx, c, a, events)
}

// claimClass explains a claim that has no volume by its storage class.
func (r *reader) claimClass(ctx context.Context, c *corev1.PersistentVolumeClaim, a *Answer, events []lookup.Event) *Answer {
	name := c.Spec.StorageClassName
	if name == nil || *name == "" {
		a.Cause = "No volume fits the claim, and it names no StorageClass that could make one."
		if e := lookup.Latest(events, "FailedBinding"); e != nil {
			a.Because(a.Object, "event "+e.Reason, e.Message, e.Time)
		}
		return a.Because(a.Object, "spec.storageClassName", "none", time.Time{}).
			Do("name a StorageClass (kubectl get storageclass), make one the default, or create a PersistentVolume that fits")
	}
	a.Because(a.Object, "spec.storageClassName", *name, time.Time{})
	class, missing := lookup.Get[storagev1.StorageClass](ctx, r.Reader, gr.StorageClasses, "", *name)
	switch {
	case missing:
		a.Cause = "The StorageClass " + *name + " of the claim does not exist, and no volume fits it."
		return a.Do("kubectl get storageclass shows those that there are")
	case class == nil:
		a.State, a.Cause = Unknown, "The claim has no volume yet, and its StorageClass "+*name+" cannot be read."
		return a
	}
	ref := Ref{Kind: "StorageClass", Name: class.Name}
	if class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer &&
		c.Annotations["volume.kubernetes.io/selected-node"] == "" {
		a.Because(ref, "volumeBindingMode", string(*class.VolumeBindingMode), time.Time{})
		users, seen := r.podsWith(ctx, c)
		if !seen {
			a.State, a.Cause = Waiting, "The claim gets its volume when the first Pod that uses it is scheduled; whether there is one cannot be read."
			return a
		}
		if len(users) == 0 {
			a.State, a.Cause = Waiting, "The claim gets its volume when the first Pod that uses it is scheduled, and no Pod uses it yet."
			return a.Do("create a Pod that mounts the claim")
		}
		a.State, a.Cause = Waiting, "The claim gets its volume when the Pod "+users[0]+" is scheduled."
		return a.Do("proa why pod/%s%s", users[0], answer.InNamespace(c.Namespace))
	}
	a.Cause = "The claim waits for the provisioner " + class.Provisioner + " of StorageClass " + class.Name +
		", which has not made a volume in " +
		r.ago(c.CreationTimestamp.Time) + "; it may not be running."
	if r.Now.Sub(c.CreationTimestamp.Time) < 10*time.Second {
		a.State = Waiting
	}
	if e := lookup.Latest(events, "ExternalProvisioning", "Provisioning", "WaitForPodScheduled"); e != nil {
		a.Because(a.Object, "event "+e.Reason, e.Message, e.Time)
	}
	return a.Because(ref, "provisioner", class.Provisioner, time.Time{}).Do("look for the Pods of the provisioner and their logs")
}

// claimBound explains a claim that has its volume.
func (r *reader) claimBound(ctx context.Context, c *corev1.PersistentVolumeClaim, a *Answer) *Answer {
	a.State, a.Cause, a.Hop, a.HopName = Working, "The claim is bound to volume "+c.Spec.VolumeName+".", 0, ""
	a.Because(a.Object, "status.phase", string(c.Status.Phase), time.Time{})
	asked, have := c.Spec.Resources.Requests[corev1.ResourceStorage], c.Status.Capacity[corev1.ResourceStorage]
	if asked.Cmp(have) > 0 {
		a.State = Waiting
		a.Cause = "The claim is bound, and waits to be made larger: it has " + have.String() + " and asks for " + asked.String() + "."
		if e := lookup.Latest(r.Events(ctx, c.Namespace, c.UID), "VolumeResizeFailed", "FileSystemResizeRequired",
			"ExternalExpanding"); e != nil {
			a.Because(a.Object, "event "+e.Reason, e.Message, e.Time)
			if e.Reason == "VolumeResizeFailed" {
				a.State, a.Cause = Stuck, "The volume of the claim cannot be made larger: "+answer.Sentence(e.Message)+"."
			}
		}
	}
	return a
}

// claimEnding explains a claim that is being deleted.
func (r *reader) claimEnding(ctx context.Context, c *corev1.PersistentVolumeClaim, a *Answer) *Answer {
	a.Because(a.Object, "metadata.finalizers", strings.Join(c.Finalizers, ", "), c.DeletionTimestamp.Time)
	users, seen := r.podsWith(ctx, c)
	if slices.Contains(c.Finalizers, "kubernetes.io/pvc-protection") && len(users) > 0 {
		a.State = Waiting
		a.Cause = "The claim is deleted as soon as no Pod uses it any more; these do: " + strings.Join(users, ", ") + "."
		return a.Do("delete these Pods, or what makes them")
	}
	a.Cause = "The claim is being deleted, and the finalizers " + strings.Join(c.Finalizers, ", ") + " keep it."
	if len(c.Finalizers) == 0 {
		a.State, a.Cause = Waiting, "The claim is being deleted."
	}
	if !seen {
		a.State = Unknown
		a.Cause = strings.TrimSuffix(a.Cause, ".") + "; whether Pods still use it cannot be read."
	}
	return a
}

// podsWith returns the names of the Pods that mount a claim. Seen is false when the Pods cannot be read.
func (r *reader) podsWith(ctx context.Context, c *corev1.PersistentVolumeClaim) (out []string, seen bool) {
	pods, seen := lookup.List[corev1.Pod](ctx, r.Reader, gr.Pods, c.Namespace, "")
	for i := range pods {
		p := &pods[i]
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		if slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == c.Name || v.Ephemeral != nil &&
				p.Name+"-"+v.Name == c.Name
		}) {
			out = append(out, p.Name)
		}
	}
	return out, seen
}
