package validate

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/quotausage"
	"proa.dev/server/admissionlib"
)

// resourceQuota enforces the quotas of a namespace. What a write uses is added to the status of each quota in the
// transaction that stores the write, on the condition that the quota has not changed: no other write can have used the
// same amount in between, whichever server it went through. Usage is lowered by the controller that recounts it.
func resourceQuota(limited []quotausage.Limited) func(context.Context, *kind.Admission) error {
	return func(ctx context.Context, a *kind.Admission) error {
		if a.Namespace == "" || a.Def.Scope != kind.Namespaced || !(quotausage.Counter{Resource: a.Def.Resource()}).Counts(writeOf(a)) {
			return nil
		}
		return chargeQuotas(ctx, a, limited)
	}
}

// writeOf returns the write as quotas see it.
func writeOf(a *kind.Admission) quotausage.Write {
	return quotausage.Write{Verb: a.Verb, Sub: a.Sub, Object: a.Object, Old: a.Old}
}

// chargeQuotas charges the quotas of a namespace for a write.
func chargeQuotas(ctx context.Context, a *kind.Admission, limited []quotausage.Limited) error {
	charge := func(ctx context.Context, d kind.Server) ([]*corev1.ResourceQuota, error) {
		quotas, err := admissionlib.List[*corev1.ResourceQuota](ctx, d, quotasOf(), a.Namespace)
		if err != nil || len(quotas) == 0 && len(limited) == 0 {
			return nil, err
		}
		c := quotausage.Counter{Resource: a.Def.Resource(), Now: time.Now()}
		if quotausage.NeedsDevices(c.Resource) {
			if c.Devices, err = readDevices(ctx, d); err != nil {
				return nil, err
			}
		}
		charged, err := c.Charge(quotas, writeOf(a), limited)
		if refusal, ok := errors.AsType[quotausage.Refusal](err); ok {
			return nil, a.Forbid(refusal)
		}
		return charged, err
	}
	// The first check rejects what exceeds a quota without waiting for a transaction.
	charged, err := charge(ctx, a.Server)
	if err != nil || len(charged) == 0 || a.DryRun {
		return err
	}
	a.AddToTransaction(func(ctx context.Context, tx kind.Replacer) error {
		charged, err := charge(ctx, tx)
		for _, q := range charged {
			tx.Replace(quotasOf(), q)
		}
		return err
	})
	return nil
}

func quotasOf() schema.GroupResource { return schema.GroupResource{Resource: "resourcequotas"} }

// readDevices reads what the usage of resource claims depends on.
func readDevices(ctx context.Context, d kind.Server) (*quotausage.Devices, error) {
	classes, err := admissionlib.List[*resourcev1.DeviceClass](ctx, d,
		schema.GroupResource{Group: resourcev1.GroupName, Resource: "deviceclasses"}, "")
	if err != nil {
		return nil, err
	}
	return &quotausage.Devices{
		Classes: classes,
		Pod: func(namespace, name string) *corev1.Pod {
			o, err := d.Get(ctx, schema.GroupResource{Resource: "pods"}, namespace, name)
			if err != nil {
				return nil // a pod that cannot be read has used nothing
			}
			pod, _ := o.(*corev1.Pod)
			return pod
		},
		Claims: func(namespace string) []*resourcev1.ResourceClaim {
			claims, _ := admissionlib.List[*resourcev1.ResourceClaim](ctx, d,
				schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceclaims"}, namespace)
			return claims
		},
	}, nil
}
