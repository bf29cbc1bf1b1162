package volume

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// surroundings are what a claim's fate depends on.
type surroundings struct {
	class    *storagev1.StorageClass // of the claim; nil when there is none
	fallback *storagev1.StorageClass // of claims that name none; nil when there is none
	named    *corev1.PersistentVolume
	match    *corev1.PersistentVolume
	waiting  []string // Pods that use the claim and are on no node yet
}

// event is what people are told.
type event struct{ kind, reason, text string }

// claimPlan is what to do about a claim. At most one of bind, class, provisioner and phase is there.
type claimPlan struct {
	bind        *corev1.PersistentVolume
	class       string // to give to a claim that names none
	provisioner string // who shall make a volume
	phase       corev1.PersistentVolumeClaimPhase
	// events are told now; quietly those only if the phase changes.
	events  []event
	quietly []event
	err     error
}

// decideClaim says what to do about a claim.
func decideClaim(claim *corev1.PersistentVolumeClaim, s surroundings) claimPlan {
	switch {
	case metav1.HasAnnotation(claim.ObjectMeta, bindCompleted):
		return decideBound(claim, s.named)
	case claim.Spec.VolumeName != "":
		return decideNamed(claim, s.named)
	case s.match != nil:
		return claimPlan{bind: s.match}
	case !asksForClass(claim) && s.fallback != nil:
		return claimPlan{class: s.fallback.Name}
	case waits(s.class) && !metav1.HasAnnotation(claim.ObjectMeta, selectedNode):
		return claimPlan{phase: corev1.ClaimPending, events: []event{delay(s.waiting)}}
	case claimClass(claim) != "":
		return decideProvision(claim, s.class)
	}
	return claimPlan{phase: corev1.ClaimPending, events: []event{
		{corev1.EventTypeNormal, "FailedBinding", "no persistent volumes available for this claim and no storage class is set"},
	}}
}

// decideNamed is for a claim that asks for a volume by its name.
func decideNamed(claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) claimPlan {
	switch {
	case v == nil:
		return claimPlan{phase: corev1.ClaimPending}
	case v.Spec.ClaimRef == nil:
		if err := satisfies(v, claim); err != nil {
			return claimPlan{phase: corev1.ClaimPending, events: []event{
				{corev1.EventTypeWarning, "VolumeMismatch", fmt.Sprintf("Cannot bind to requested volume %q: %s", v.Name, err)},
			}}
		}
		return claimPlan{bind: v}
	case reserved(v, claim):
		return claimPlan{bind: v}
	}
	taken := []event{{corev1.EventTypeWarning, "FailedBinding", fmt.Sprintf("volume %q already bound to a different claim.", v.Name)}}
	if !metav1.HasAnnotation(claim.ObjectMeta, boundByUs) {
		return claimPlan{phase: corev1.ClaimPending, events: taken}
	}
	ref := v.Spec.ClaimRef
	return claimPlan{events: taken, err: fmt.Errorf("invalid binding of claim %q to volume %q: volume already claimed by %q",
		claim.Namespace+"/"+claim.Name, v.Name, ref.Namespace+"/"+ref.Name)}
}

// decideBound is for a claim that has been bound.
func decideBound(claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) claimPlan {
	lost := func(reason, text string) claimPlan {
		return claimPlan{phase: corev1.ClaimLost, quietly: []event{{corev1.EventTypeWarning, reason, text}}}
	}
	switch {
	case claim.Spec.VolumeName == "":
		return lost("ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
	case v == nil:
		return lost("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
	case v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID == claim.UID:
		return claimPlan{bind: v}
	}
	return lost("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
}

// delay says what a claim waits for whose volume depends on where its Pod will be.
func delay(pods []string) event {
	switch len(pods) {
	case 0:
		return event{corev1.EventTypeNormal, "WaitForFirstConsumer", "waiting for first consumer to be created before binding"}
	case 1:
		return event{corev1.EventTypeNormal, "WaitForPodScheduled", fmt.Sprintf("waiting for pod %s to be scheduled", pods[0])}
	}
	return event{corev1.EventTypeNormal, "WaitForPodScheduled", fmt.Sprintf("waiting for pods %s to be scheduled", strings.Join(pods, ","))}
}

// decideProvision asks for a volume to be made. Whoever makes it runs outside: nothing that was once built in still does.
func decideProvision(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) claimPlan {
	failed := func(text string) claimPlan {
		return claimPlan{events: []event{{corev1.EventTypeWarning, "ProvisioningFailed", text}}}
	}
	if class == nil {
		return failed(fmt.Sprintf("storageclass.storage.k8s.io %q not found", claimClass(claim)))
	}
	name := class.Provisioner
	driver, moved := driverOf(name)
	switch {
	case moved:
		name = driver
	case name == "kubernetes.io/host-path":
		p := failed("Failed to create provisioner: provisioning in volume plugin \"kubernetes.io/host-path\" is disabled")
		p.provisioner = name
		return p
	case name == "kubernetes.io/nfs":
		return failed("no provisionable volume plugin matched")
	case strings.HasPrefix(name, inTree):
		return failed("no volume plugin matched name: " + name)
	}
	return claimPlan{provisioner: name, events: []event{{
		corev1.EventTypeNormal, "ExternalProvisioning", fmt.Sprintf("Waiting for a volume to be created either by the external provisioner '%s' "+
			"or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered.", name),
	}}}
}
