package validate

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/quota"
)

// resourceQuota holds a namespace to its quotas. What a write uses is added to the status of each quota in the transaction
// that stores the write, on the condition that the quota has not changed: no other write can have spent the same in between,
// whichever server it went through. Quotas are lowered by the controller that counts again.
func resourceQuota(limited []quota.Limited) func(context.Context, *kind.Admission) error {
	return func(ctx context.Context, a *kind.Admission) error {
		if a.Namespace == "" || a.Def.Scope != kind.Namespaced || !(quota.Counter{Resource: a.Def.Resource()}).Counts(written(a)) {
			return nil
		}
		return spend(ctx, a, limited)
	}
}

// written is the write as quotas see it.
func written(a *kind.Admission) quota.Write {
	return quota.Write{Verb: a.Verb, Sub: a.Sub, Object: a.Object, Old: a.Old}
}

// spend charges the quotas of a namespace for a write.
func spend(ctx context.Context, a *kind.Admission, limited []quota.Limited) error {
	charge := func(ctx context.Context, d kind.Door) ([]*corev1.ResourceQuota, error) {
		quotas, err := all[*corev1.ResourceQuota](ctx, d, quotasOf(), a.Namespace)
		if err != nil || len(quotas) == 0 && len(limited) == 0 {
			return nil, err
		}
		c := quota.Counter{Resource: a.Def.Resource(), Now: time.Now()}
		if quota.NeedsDevices(c.Resource) {
			if c.Devices, err = devices(ctx, d); err != nil {
				return nil, err
			}
		}
		charged, err := c.Charge(quotas, written(a), limited)
		if refusal, ok := errors.AsType[quota.Refusal](err); ok {
			return nil, a.Forbid(refusal)
		}
		return charged, err
	}
	// The first look refuses what cannot be, without waiting for anybody.
	charged, err := charge(ctx, a.Door)
	if err != nil || len(charged) == 0 || a.DryRun {
		return err
	}
	a.Join(func(ctx context.Context, tx kind.Replacer) error {
		charged, err := charge(ctx, tx)
		for _, q := range charged {
			tx.Replace(quotasOf(), q)
		}
		return err
	})
	return nil
}

func quotasOf() schema.GroupResource { return schema.GroupResource{Resource: "resourcequotas"} }

// devices reads what the usage of resource claims depends on.
func devices(ctx context.Context, d kind.Door) (*quota.Devices, error) {
	classes, err := all[*resourcev1.DeviceClass](ctx, d, schema.GroupResource{Group: resourcev1.GroupName, Resource: "deviceclasses"}, "")
	if err != nil {
		return nil, err
	}
	return &quota.Devices{
		Classes: classes,
		Pod: func(namespace, name string) *corev1.Pod {
			o, err := d.Get(ctx, schema.GroupResource{Resource: "pods"}, namespace, name)
			if err != nil {
				return nil // a pod that cannot be read has paid for nothing
			}
			pod, _ := o.(*corev1.Pod)
			return pod
		},
		Claims: func(namespace string) []*resourcev1.ResourceClaim {
			claims, _ := all[*resourcev1.ResourceClaim](ctx, d, schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceclaims"}, namespace)
			return claims
		},
	}, nil
}
