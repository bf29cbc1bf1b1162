package resource

import (
	"context"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/kind"
)

// fakeServer allows what is listed: verb subresource name.
type fakeServer struct {
	kind.Server
	user  user.DefaultInfo
	grant string
}

func (d *fakeServer) User() user.Info { return &d.user }

func (d *fakeServer) ReviewAccess(_ context.Context, s authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
	a := s.ResourceAttributes
	return authorizationv1.SubjectAccessReviewStatus{Allowed: strings.TrimSpace(a.Verb+" "+a.Subresource+" "+a.Name) == d.grant}
}

func TestClaimStatusNeedsPermission(t *testing.T) {
	old := &resourcev1.ResourceClaim{}
	old.Namespace = "default"
	bound := old.DeepCopy()
	bound.Status.Allocation = &resourcev1.AllocationResult{}
	withDevices := bound.DeepCopy()
	withDevices.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: "d.com"}}
	for _, c := range []struct {
		name, grant  string
		next, stored *resourcev1.ResourceClaim
		want         string
	}{
		{"no change", "", bound, bound, ""},
		{"binding", "update binding", bound, old, ""},
		{"binding without right", "", bound, old, `status.allocation: Forbidden: changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="update" permission: resourceclaims.resource.k8s.io is forbidden: User "bob" cannot update resource "resourceclaims/binding" in API group "resource.k8s.io" at the cluster scope`},
		{"reporting", "arbitrary-node:update driver d.com", withDevices, bound, ""},
		{"reporting without right", "arbitrary-node:update driver e.com", withDevices, bound, `status.devices: Forbidden: changing status.devices requires resource="resourceclaims/driver", verb="[arbitrary-node:update]" permission: resourceclaims.resource.k8s.io "d.com" is forbidden: User "bob" cannot arbitrary-node:update resource "resourceclaims/driver" in API group "resource.k8s.io" in the namespace "default"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got string
			if err := allowClaimStatus(t.Context(), &fakeServer{user: user.DefaultInfo{Name: "bob"}, grant: c.grant}, c.next,
				c.stored).ToAggregate(); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}
