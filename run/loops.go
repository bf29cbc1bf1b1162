package run

import (
	"context"
	"crypto"
	"crypto/x509"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/control/attach"
	"proa.dev/control/autoscale"
	"proa.dev/control/available"
	"proa.dev/control/bootstrap"
	"proa.dev/control/certificate"
	"proa.dev/control/clusterrole"
	"proa.dev/control/cronjob"
	"proa.dev/control/daemonset"
	"proa.dev/control/definition"
	"proa.dev/control/deployment"
	"proa.dev/control/disruption"
	"proa.dev/control/endpoints"
	"proa.dev/control/endpointslice"
	"proa.dev/control/ephemeral"
	"proa.dev/control/expand"
	"proa.dev/control/flowconfig"
	"proa.dev/control/gc"
	"proa.dev/control/ipam"
	"proa.dev/control/job"
	"proa.dev/control/mirror"
	"proa.dev/control/namespace"
	"proa.dev/control/nodelife"
	"proa.dev/control/podcertificate"
	"proa.dev/control/podgc"
	"proa.dev/control/protection"
	"proa.dev/control/quota"
	"proa.dev/control/replicaset"
	"proa.dev/control/resourceclaim"
	"proa.dev/control/rootca"
	"proa.dev/control/satoken"
	"proa.dev/control/serviceaccount"
	"proa.dev/control/servicecidr"
	"proa.dev/control/statefulset"
	"proa.dev/control/storageversion"
	"proa.dev/control/tainteviction"
	"proa.dev/control/trustbundle"
	"proa.dev/control/ttl"
	"proa.dev/control/volume"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
	"proa.dev/node/simulate"
	"proa.dev/schedule"
	"proa.dev/server/authz"
)

// controllers are the loops that shall run.
func (s *Server) controllers() []control.Controller {
	all := slices.DeleteFunc(s.every(), func(c control.Controller) bool { return !s.runs(c.Name) })
	if s.Loops != nil {
		all = s.Loops(all)
	}
	return all
}

// every is the list of the loops of the control plane.
func (s *Server) every() []control.Controller {
	namespaced := func() (out []schema.GroupResource) {
		for _, d := range s.defs {
			if d.Hub == nil && d.Scope == kind.Namespaced && d.Allows("deletecollection") && d.Allows("list") {
				out = append(out, d.Resource())
			}
		}
		return out
	}
	all := append(protection.Controllers(),
		definition.Controller(),
		serviceaccount.Controller(),
		rootca.Controller(string(s.pki.CA().PEM)),
		clusterrole.Controller(authz.Aggregate),
		namespace.Controller(namespaced, s.controller("namespace-controller").View),
		gc.New(gc.Resources(func() []*kind.Def { return s.defs })).Controller(),

		nodelife.Controller(nodelife.Config{}),
		tainteviction.Controller(),
		podgc.Controller(podgc.Threshold),

		replicaset.Controller(),
		replicaset.Replication(),
		deployment.Controller(),
		statefulset.Controller(),
		daemonset.Controller(),
		job.Controller(),
		cronjob.Controller(),
		ttl.Controller(),
		disruption.Controller(s.scalable),
		quota.Controller(s.countable),
		autoscale.Controller(autoscale.Absent(), s.ofKind, autoscale.Options{}),

		endpointslice.Controller(),
		endpoints.Controller(),
		mirror.Controller(),
		servicecidr.Controller(),

		ephemeral.Controller(),
		certificate.Controller(certificate.Config{CA: func() (*x509.Certificate, crypto.Signer) { return s.pki.CA().Cert, s.pki.CA().Key }}),
		trustbundle.Controller(string(s.pki.CA().PEM)),
		satoken.Tokens(func(a *corev1.ServiceAccount, secret string) (string, error) { return s.auth.IssueLegacy(a, secret) }, string(s.pki.CA().PEM)),
		satoken.Tracker(),
		bootstrap.Signer(),
		bootstrap.Cleaner(),
		podcertificate.Controller(),
		storageversion.Controller(s.state.Def),
		available.APIServices(),
		available.FlowSchemas(),
		expand.Controller(),
		attach.Controller(attach.Config{}),
		satoken.Cleaner(satoken.DefaultCleanUp),
		ipam.Controller(s.podRanges()),
	)
	all = append(all, volume.Controllers(volume.Config{})...)
	all = append(all, resourceclaim.Controllers()...)
	all = append(all, flowconfig.Controllers()...)
	if s.Simulate > 0 {
		all = append(all, simulate.Controllers(simulate.Behaviour{Quiet: s.Simulate > quietNodes})...)
	}
	return all
}

// runs says that a loop shall run.
func (s *Server) runs(name string) bool {
	return len(s.Controllers) == 0 || !slices.Contains(s.Controllers, "-"+name) && (slices.Contains(s.Controllers, name) || slices.Contains(s.Controllers, "*"))
}

// known refuses names of loops that there are not.
func (s *Server) known() error {
	names := []string{schedulerName}
	for _, c := range s.every() {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	for _, n := range s.Controllers {
		if n = strings.TrimPrefix(n, "-"); n != "*" && !slices.Contains(names, n) {
			return fmt.Errorf("controllers: there is no %q; there are: %s", n, strings.Join(slices.Compact(names), ", "))
		}
	}
	return nil
}

const schedulerName = "kube-scheduler"

// countable are the resources that a quota may bound: those that live in namespaces.
func (s *Server) countable() (out []schema.GroupResource) {
	for _, d := range s.defs {
		if d.Hub == nil && d.Scope == kind.Namespaced && d.Allows("create") && d.Allows("list") && d.Allows("delete") {
			out = append(out, d.Resource())
		}
	}
	return out
}

// podRanges are where the networks of nodes come from. Many simulated nodes need more than the usual range has.
func (s *Server) podRanges() []ipam.Range {
	if s.Simulate > 250 && len(s.PodRanges) == 0 {
		return []ipam.Range{{CIDR: netip.MustParsePrefix("10.128.0.0/9"), NodeMask: 24}}
	}
	if len(s.PodRanges) == 0 {
		return ipam.Default()
	}
	return s.PodRanges
}

// scalable finds the resource of a kind, and says whether it has a scale.
func (s *Server) scalable(gvk schema.GroupVersionKind) (on schema.GroupResource, scales bool, err error) {
	for _, d := range s.defs {
		if d.GroupVersionKind == gvk {
			return d.Storage().Resource(), d.Sub("scale") != nil, nil
		}
	}
	return on, false, fmt.Errorf("no matches for kind %q in version %q", gvk.Kind, gvk.GroupVersion())
}

// ofKind finds the resources of a kind, whatever its version.
func (s *Server) ofKind(gk schema.GroupKind) (out []schema.GroupResource, err error) {
	for _, d := range s.defs {
		if d.GroupVersionKind.GroupKind() == gk && d.Hub == nil {
			out = append(out, d.Resource())
		}
	}
	if out == nil {
		err = fmt.Errorf("no matches for kind %q in group %q", gk.Kind, gk.Group)
	}
	return out, err
}

// quietNodes is the number of simulated nodes from which on they write no Events about Pods: those would be most of the writes.
const quietNodes = 10

// loops starts what acts on its own. Where several servers may share an etcd, one of them at a time does.
func (s *Server) loops(ctx context.Context, wg *sync.WaitGroup, fail context.CancelCauseFunc) {
	all := s.controllers()
	wg.Go(func() {
		s.lead(ctx, "kube-controller-manager", fail, func(ctx context.Context) {
			var wg sync.WaitGroup
			defer wg.Wait()
			for _, ctl := range all {
				wg.Go(func() {
					if err := control.Run(ctx, s.log, s.controller(ctl.Name), ctl, s.queues); err != nil && ctx.Err() == nil {
						fail(err)
					}
				})
			}
		})
	})
	if s.Loops != nil || !s.runs(schedulerName) {
		return
	}
	wg.Go(func() {
		s.lead(ctx, schedulerName, fail, func(ctx context.Context) {
			if err := s.scheduler(ctx); err != nil && ctx.Err() == nil {
				fail(err)
			}
		})
	})
}

// scheduler places Pods on nodes.
func (s *Server) scheduler(ctx context.Context) error {
	who := &user.DefaultInfo{Name: user.KubeScheduler, Groups: []string{user.AllAuthenticated}}
	return schedule.Run(ctx, s.log, s.front.Client(who), s.placing)
}

// openScheduler reads how Pods are to be placed.
func (s *Server) openScheduler(counts prometheus.Registerer) error {
	s.placing = schedule.Config{Recent: schedule.NewRecent(), Metrics: schedule.NewMetrics(), Post: askExtender}
	if err := counts.Register(s.placing.Metrics); err != nil {
		return err
	}
	if s.SchedulerConfig == "" {
		return nil
	}
	text, err := os.ReadFile(s.SchedulerConfig)
	if err != nil {
		return fmt.Errorf("read the scheduler's configuration: %w", err)
	}
	if s.placing.File, err = schedule.Parse(text); err != nil {
		return fmt.Errorf("%s: %w", s.SchedulerConfig, err)
	}
	return nil
}

// lead calls work while this process is the one to do it, until ctx ends.
func (s *Server) lead(ctx context.Context, part string, fail context.CancelCauseFunc, work func(context.Context)) {
	if len(s.EtcdServers) == 0 {
		work(ctx) // the store is this process's own
		return
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	l := control.Leadership{Lease: part, Identity: host + "_" + uuid.NewString()}
	if err := l.Run(ctx, s.log, s.front.Client(&user.DefaultInfo{Name: "system:" + part, Groups: []string{user.AllAuthenticated}}), work); err != nil && ctx.Err() == nil {
		fail(err)
	}
}

// roles are the roles of controllers, from what they declare. Controllers that share a name share a role.
func roles(controllers []control.Controller) (out []*rbacv1.ClusterRole) {
	byName := map[string]*rbacv1.ClusterRole{}
	for _, ctl := range controllers {
		r := byName[ctl.Name]
		if r == nil {
			r = &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: roleName(ctl.Name)}}
			byName[ctl.Name], out = r, append(out, r)
		}
		r.Rules = append(r.Rules, ctl.Role()...)
	}
	return append(out, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: leaderRole},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"list", "watch", "create", "update"}, APIGroups: []string{gr.Leases.Group}, Resources: []string{gr.Leases.Resource}}},
	})
}

const leaderRole = "proa:leader"

func roleName(controller string) string { return "proa:controller:" + controller }

// bindings give the roles to the controllers.
func bindings(controllers []control.Controller) (out []*rbacv1.ClusterRoleBinding) {
	bind := func(role string, subjects ...rbacv1.Subject) {
		out = append(out, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: subjects,
		})
	}
	done := map[string]bool{}
	for _, ctl := range controllers {
		if !done[ctl.Name] {
			bind(roleName(ctl.Name), rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: ctl.Name})
		}
		done[ctl.Name] = true
	}
	bind(leaderRole, rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "system:kube-controller-manager"},
		rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "system:kube-scheduler"})
	return out
}

// controller is the identity of a controller.
func (s *Server) controller(name string) client.Client {
	c := s.front.Client(&user.DefaultInfo{
		Name:   "system:serviceaccount:kube-system:" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", user.AllAuthenticated},
	})
	if s.Wrap != nil {
		c = s.Wrap(name, c)
	}
	return c
}
