package dra

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Claim is the stored state of a ResourceClaim.
type Claim struct {
	UID             types.UID `json:"uid"`
	Namespace, Name string
	Pods            []types.UID        `json:"pods,omitempty"`
	Drivers         map[string]*Driver `json:"drivers,omitempty"`
	// Prepared reports that every driver has prepared its part.
	Prepared bool `json:"prepared,omitempty"`
}

// Driver is the part of a claim that one driver prepares.
type Driver struct {
	Devices []Device `json:"devices,omitempty"`
	// SkipPrepare and SkipUnprepare say that the driver need not be called.
	SkipPrepare   bool `json:"skipPrepare,omitempty"`
	SkipUnprepare bool `json:"skipUnprepare,omitempty"`
}

// Device is a prepared device.
type Device struct {
	Pool, Name string
	Share      string `json:",omitempty"`
	// Requests are the requests of the claim that it is for; none for all.
	Requests []string `json:",omitempty"`
	// CDI are its CDI names.
	CDI []string `json:",omitempty"`
}

// serves reports whether a device is for a request; an empty request stands for any.
func (d *Device) serves(request string) bool {
	return request == "" || len(d.Requests) == 0 || slices.Contains(d.Requests, request)
}

func (c *Claim) key() string { return c.Namespace + "/" + c.Name }

// claimOf makes the state of a claim that is not prepared yet.
func claimOf(c *resourcev1.ResourceClaim) (*Claim, error) {
	if c.Status.Allocation == nil {
		return nil, errors.New("not allocated")
	}
	out := &Claim{UID: c.UID, Namespace: c.Namespace, Name: c.Name, Drivers: map[string]*Driver{}}
	for _, r := range c.Status.Allocation.Devices.Results {
		skips := func(op resourcev1.SkipNodeOperation) bool {
			return slices.Contains(r.SkipNodeOperations, resourcev1.SkipNodeOperationAll) || slices.Contains(r.SkipNodeOperations, op)
		}
		d := out.Drivers[r.Driver]
		if d == nil {
			d = &Driver{SkipPrepare: true, SkipUnprepare: true}
			out.Drivers[r.Driver] = d
		}
		// A driver is skipped only if all of its devices say so.
		d.SkipPrepare = d.SkipPrepare && skips(resourcev1.SkipNodeOperationNodePrepareResources)
		d.SkipUnprepare = d.SkipUnprepare && skips(resourcev1.SkipNodeOperationNodeUnprepareResources)
	}
	return out, nil
}

// named is a claim of a Pod.
type named struct {
	claim string
	// generated says that the claim was created for this Pod, which must then own it.
	generated bool
}

// claimsOf returns the names of a Pod's claims.
func claimsOf(p *corev1.Pod) (out []named, err error) {
	for i := range p.Spec.ResourceClaims {
		n, found, err := nameOf(p, &p.Spec.ResourceClaims[i])
		if err != nil {
			return nil, err
		}
		if found {
			out = append(out, n)
		}
	}
	if e := p.Status.ExtendedResourceClaimStatus; e != nil && e.ResourceClaimName != "" {
		out = append(out, named{claim: e.ResourceClaimName})
	}
	return out, nil
}

// nameOf returns the name of one claim of a Pod. A template may result in no claim.
func nameOf(p *corev1.Pod, c *corev1.PodResourceClaim) (n named, found bool, err error) {
	switch {
	case c.ResourceClaimName != nil:
		return named{claim: *c.ResourceClaimName}, true, nil
	case c.ResourceClaimTemplateName == nil:
		return named{}, false, fmt.Errorf(`pod "%s/%s", spec.resourceClaim %q: none of the supported fields are set`, p.Namespace, p.Name, c.Name)
	}
	for _, s := range p.Status.ResourceClaimStatuses {
		if s.Name != c.Name {
			continue
		}
		if s.ResourceClaimName == nil {
			return named{}, false, nil
		}
		return named{*s.ResourceClaimName, true}, true, nil
	}
	return named{}, false, fmt.Errorf(`pod "%s/%s": ResourceClaim not created yet`, p.Namespace, p.Name)
}

// allowed returns why a Pod may not use a claim.
func allowed(p *corev1.Pod, c *resourcev1.ResourceClaim, generated bool) error {
	if generated && !metav1.IsControlledBy(c, p) {
		return fmt.Errorf("ResourceClaim %s/%s was not created for Pod %s/%s (Pod is not owner)", c.Namespace, c.Name, p.Namespace, p.Name)
	}
	if !slices.ContainsFunc(c.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == p.UID }) {
		return fmt.Errorf("pod %s (%s) is not allowed to use ResourceClaim %s (%s)", p.Name, p.UID, c.Name, c.UID)
	}
	return nil
}

// use is a request of a claim that a container uses; an empty request stands for all.
type use struct{ claim, request string }

// usesOf returns what a container uses of the claims of its Pod.
func usesOf(p *corev1.Pod, c *corev1.Container) (out []use, err error) {
	for i := range p.Spec.ResourceClaims {
		for _, x := range c.Resources.Claims {
			if x.Name != p.Spec.ResourceClaims[i].Name {
				continue
			}
			n, found, err := nameOf(p, &p.Spec.ResourceClaims[i])
			if err != nil {
				return nil, err
			}
			if found {
				out = append(out, use{n.claim, x.Request})
			}
		}
	}
	if e := p.Status.ExtendedResourceClaimStatus; e != nil {
		for _, x := range e.RequestMappings {
			if q := c.Resources.Requests[corev1.ResourceName(x.ResourceName)]; x.ContainerName == c.Name && !q.IsZero() {
				out = append(out, use{e.ResourceClaimName, x.RequestName})
			}
		}
	}
	return out, nil
}
