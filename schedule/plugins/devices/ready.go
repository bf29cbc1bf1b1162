package devices

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/internal/wait"
	"proa.dev/kinds/lib/gr"
	"proa.dev/schedule/eventseries"
	"proa.dev/schedule/framework"
)

var (
	errDevicesLate   = errors.New("device binding timeout")
	errDevicesFailed = errors.New("device binding failed")
)

// hasBindingConditions reports whether a Pod may be bound only when the devices of a claim are ready.
func hasBindingConditions(claim *resourcev1.ResourceClaim) bool {
	a := claim.Status.Allocation
	return a != nil && slices.ContainsFunc(a.Devices.Results,
		func(r resourcev1.DeviceRequestAllocationResult) bool { return len(r.BindingConditions) > 0 })
}

// devicesReady reports whether all devices of a claim are ready. It returns an error if one has failed to become ready.
func devicesReady(claim *resourcev1.ResourceClaim) (bool, error) {
	if claim.Status.Allocation == nil {
		return false, nil
	}
	for _, r := range claim.Status.Allocation.Devices.Results {
		if len(r.BindingConditions) == 0 {
			continue
		}
		at := slices.IndexFunc(claim.Status.Devices, func(s resourcev1.AllocatedDeviceStatus) bool {
			return s.Driver == r.Driver && s.Pool == r.Pool && s.Device == r.Device
		})
		if at < 0 {
			return false, nil
		}
		is := claim.Status.Devices[at].Conditions
		for _, name := range r.BindingFailureConditions {
			if c := meta.FindStatusCondition(is, name); c != nil && c.Status == metav1.ConditionTrue {
				return false, fmt.Errorf("%w: claim=%s, reason=%s, message=%q", errDevicesFailed, claim.Name, c.Reason, c.Message)
			}
		}
		if slices.ContainsFunc(r.BindingConditions, func(name string) bool { return !meta.IsStatusConditionTrue(is, name) }) {
			return false, nil
		}
	}
	return true, nil
}

// hasFailed reports whether devices of a claim have failed to become ready or took too long, so that the claim needs
// other devices.
func (d *dynamicResources) hasFailed(claim *resourcev1.ResourceClaim) bool {
	if !hasBindingConditions(claim) {
		return false
	}
	ready, err := devicesReady(claim)
	return err != nil || !ready && d.isLate(claim)
}

func (d *dynamicResources) isLate(claim *resourcev1.ResourceClaim) bool {
	since := claim.Status.Allocation.AllocationTimestamp
	return since != nil && time.Since(since.Time) > d.args.BindingTimeout
}

// awaitDevices waits until the devices of claims are ready.
func (w *podDevices) awaitDevices(ctx context.Context, node string, claims []*resourcev1.ResourceClaim) error {
	claims = slices.DeleteFunc(slices.Clone(claims), func(c *resourcev1.ResourceClaim) bool { return !hasBindingConditions(c) })
	if len(claims) == 0 {
		return nil
	}
	w.deps.Events.Record(w.pod, eventseries.Note{
		Controller: w.pod.Spec.SchedulerName, Type: corev1.EventTypeNormal, Reason: "BindingConditionsPending", Action: "Scheduling",
		Message: fmt.Sprintf("waiting for binding conditions for device on node %s", node),
	})
	timeout, cancel := context.WithTimeout(ctx, w.args.BindingTimeout)
	defer cancel()
	poll := wait.Backoff{First: 50 * time.Millisecond, Max: time.Second}
	for {
		ready, err := w.allReady(ctx, claims)
		if ready || err != nil {
			return err
		}
		if err := poll.Sleep(timeout); err != nil {
			return fmt.Errorf("%w: %w", errDevicesLate, err)
		}
	}
}

// allReady reports whether the devices of all claims are ready, according to views that contain what was written.
func (w *podDevices) allReady(ctx context.Context, claims []*resourcev1.ResourceClaim) (bool, error) {
	for _, wrote := range claims {
		o, found := w.deps.Views.Get(gr.ResourceClaims, wrote.Namespace, wrote.Name)
		if !found || o.GetUID() != wrote.UID { // the claim was deleted, or created again
			_, err := w.deps.Client.Get(ctx, gr.ResourceClaims, wrote.Namespace, wrote.Name, "")
			return false, err
		}
		claim := o.(*resourcev1.ResourceClaim)
		if framework.IsOlder(claim, wrote) {
			return false, nil
		}
		ready, err := devicesReady(claim)
		switch {
		case err != nil:
			return false, err
		case claim.Status.Allocation == nil:
			return false, fmt.Errorf("claim %s/%s got deallocated elsewhere in the meantime", claim.Namespace, claim.Name)
		case !ready && w.isLate(claim):
			return false, fmt.Errorf("%w: claim=%s", errDevicesLate, claim.Name)
		case !ready:
			return false, nil
		}
	}
	return true, nil
}
