package persistentvolume

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// claimContext has the objects that a decision about a claim depends on.
type claimContext struct {
	class        *storagev1.StorageClass // of the claim; nil if it has none
	defaultClass *storagev1.StorageClass // the default class, for a claim that names none; nil if there is none
	named        *corev1.PersistentVolume
	match        *corev1.PersistentVolume
	waiting      []string // Pods that use the claim and have no node yet
}

// event is an Event to record.
type event struct{ kind, reason, text string }

// claimPlan is what to do with a claim. At most one of bind, class, provisioner and phase is set.
type claimPlan struct {
	bind        *corev1.PersistentVolume
	class       string // the default class, for a claim that names none
	provisioner string // the provisioner that shall create a volume
	phase       corev1.PersistentVolumeClaimPhase
	// events are recorded in any case; eventsOnPhaseChange only if the phase changes.
	events              []event
	eventsOnPhaseChange []event
	err                 error
}

// decideClaim returns what to do with a claim.
func decideClaim(claim *corev1.PersistentVolumeClaim, s claimContext) claimPlan {
	switch {
	case metav1.HasAnnotation(claim.ObjectMeta, bindCompleted):
		return decideBound(claim, s.named)
	case claim.Spec.VolumeName != "":
		return decideNamed(claim, s.named)
	case s.match != nil:
		return claimPlan{bind: s.match}
	case !asksForClass(claim) && s.defaultClass != nil:
		return claimPlan{class: s.defaultClass.Name}
	case waitsForConsumer(s.class) && !metav1.HasAnnotation(claim.ObjectMeta, selectedNode):
		return claimPlan{phase: corev1.ClaimPending, events: []event{waitEvent(s.waiting)}}
	case claimClass(claim) != "":
		return decideProvision(claim, s.class)
	}
	return claimPlan{phase: corev1.ClaimPending, events: []event{
		{corev1.EventTypeNormal, "FailedBinding", "no persistent volumes available for this claim and no storage class is set"},
	}}
}

// decideNamed decides about a claim that names a volume and is not bound yet.
func decideNamed(claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) claimPlan {
	switch {
	case v == nil:
		return claimPlan{phase: corev1.ClaimPending}
	case v.Spec.ClaimRef == nil:
		if err := checkSatisfies(v, claim); err != nil {
			return claimPlan{phase: corev1.ClaimPending, events: []event{
				{corev1.EventTypeWarning, "VolumeMismatch", fmt.Sprintf("Cannot bind to requested volume %q: %s", v.Name, err)},
			}}
		}
		return claimPlan{bind: v}
	case isReservedFor(v, claim):
		return claimPlan{bind: v}
	}
	taken := []event{{corev1.EventTypeWarning, "FailedBinding", fmt.Sprintf("volume %q already bound to a different claim.", v.Name)}}
	if !metav1.HasAnnotation(claim.ObjectMeta, boundByController) {
		return claimPlan{phase: corev1.ClaimPending, events: taken}
	}
	ref := v.Spec.ClaimRef
	return claimPlan{events: taken, err: fmt.Errorf("invalid binding of claim %q to volume %q: volume already claimed by %q",
		claim.Namespace+"/"+claim.Name, v.Name, ref.Namespace+"/"+ref.Name)}
}

// decideBound decides about a claim that was bound before.
func decideBound(claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) claimPlan {
	lostPlan := func(reason, text string) claimPlan {
		return claimPlan{phase: corev1.ClaimLost, eventsOnPhaseChange: []event{{corev1.EventTypeWarning, reason, text}}}
	}
	switch {
	case claim.Spec.VolumeName == "":
		return lostPlan("ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
	case v == nil:
		return lostPlan("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
	case v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID == claim.UID:
		return claimPlan{bind: v}
	}
	return lostPlan("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
}

// waitEvent returns the Event about a claim that is bound only when its Pod is scheduled.
func waitEvent(pods []string) event {
	switch len(pods) {
	case 0:
		return event{corev1.EventTypeNormal, "WaitForFirstConsumer", "waiting for first consumer to be created before binding"}
	case 1:
		return event{corev1.EventTypeNormal, "WaitForPodScheduled", fmt.Sprintf("waiting for pod %s to be scheduled", pods[0])}
	}
	return event{corev1.EventTypeNormal, "WaitForPodScheduled", fmt.Sprintf("waiting for pods %s to be scheduled", strings.Join(pods, ","))}
}

// decideProvision asks an external provisioner for a volume. The provisioners that were once built into Kubernetes no longer exist.
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
