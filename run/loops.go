package run

import (
	"crypto"
	"crypto/x509"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/control"
	"proa.dev/control/apiservice"
	"proa.dev/control/attach"
	"proa.dev/control/autoscale"
	"proa.dev/control/available"
	"proa.dev/control/bootstrap"
	"proa.dev/control/certificate"
	"proa.dev/control/cloud"
	"proa.dev/control/clusterrole"
	"proa.dev/control/clustersettings"
	"proa.dev/control/cronjob"
	"proa.dev/control/daemonset"
	"proa.dev/control/definition"
	"proa.dev/control/deployment"
	"proa.dev/control/devicetaint"
	"proa.dev/control/disruption"
	"proa.dev/control/endpoints"
	"proa.dev/control/endpointslice"
	"proa.dev/control/ephemeral"
	"proa.dev/control/expand"
	"proa.dev/control/extensiontrust"
	"proa.dev/control/flowconfig"
	"proa.dev/control/gc"
	"proa.dev/control/ipam"
	"proa.dev/control/job"
	"proa.dev/control/localpath"
	"proa.dev/control/mirror"
	"proa.dev/control/namespace"
	"proa.dev/control/nodelife"
	"proa.dev/control/nodettl"
	"proa.dev/control/podcertificate"
	"proa.dev/control/podgc"
	"proa.dev/control/policystatus"
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
	"proa.dev/control/strangers"
	"proa.dev/control/tainteviction"
	"proa.dev/control/trustbundle"
	"proa.dev/control/ttl"
	"proa.dev/control/volume"
	"proa.dev/kinds/core"
	"proa.dev/node/simulate"
	"proa.dev/run/pki"
	"proa.dev/server/authn"
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
	all := append(protection.Controllers(),
		serviceaccount.Controller(),
		rootca.Controller(s.root),
		extensiontrust.Controller(s.extensionTrust),
		clustersettings.Controller(s.clusterSettings),
		clusterrole.Controller(authz.Aggregate),
		namespace.Controller(namespace.Config{
			Resources: s.builtIn(emptiedVerbs()), Custom: s.andElsewhere(s.occupied(s.custom(emptiedVerbs()))),
			Open: s.openAnywhere("namespace-controller"), Undiscovered: s.undiscovered,
		}),
		s.alsoElsewhere(gc.New(gc.Resources(s.allResources)).With(s.occupancy()).Controller()),

		nodelife.Controller(nodelife.Config{}),
		nodettl.Controller(),
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
		s.alsoElsewhere(quota.Controller(s.builtIn(countedVerbs()), s.andElsewhere(s.custom(countedVerbs())))),
		autoscale.Controller(s.measurements(), s.ofKind, autoscale.Options{}),

		endpointslice.Controller(),
		endpoints.Controller(),
		mirror.Controller(),
		strangers.Controller(),
		servicecidr.Controller(),

		ephemeral.Controller(),
		certificate.Controller(certificate.Config{
			CA:        func() (*x509.Certificate, crypto.Signer) { return s.pki.CA().Cert, s.pki.CA().Key },
			KubeletCA: func() (*x509.Certificate, crypto.Signer) { return s.pki.KubeletCA().Cert, s.pki.KubeletCA().Key },
			Reserved:  s.reservedAddresses(),
		}),
		trustbundle.APIServer(s.root),
		trustbundle.Agents(s.agentRoot),
		satoken.Tokens(func(a *corev1.ServiceAccount, secret string) (string, error) { return s.auth.IssueLegacy(a, secret) }, s.root),
		satoken.Tracker(),
		bootstrap.Signer(),
		bootstrap.Cleaner(),
		podcertificate.Controller(),
		available.APIServices(),
		available.Aggregated(s.checkAPIService),
		apiservice.Controller(s.builtInAPIServices),
		available.FlowSchemas(),
		policystatus.Controller(s.typeCheck),
		expand.Controller(),
		attach.Controller(attach.Config{}),
		satoken.Cleaner(satoken.DefaultCleanUp),
		ipam.Controller(s.allocatedRanges()),
	)
	all = append(all, cloud.Controllers(s.cloud(), s.ClusterCIDRs())...)
	all = append(all, definition.Controllers(s.isBuiltIn)...)
	all = append(all, volume.Controllers(volume.Config{})...)
	all = append(all, resourceclaim.Controllers()...)
	all = append(all, devicetaint.Controllers()...)
	all = append(all, localpath.Controllers()...)
	all = append(all, flowconfig.Controllers()...)
	if s.feature(migrating) {
		all = append(all, storageversion.Controller(s.state.Def))
	}
	if s.Simulate > 0 {
		all = append(all, simulate.Controllers(simulate.Behaviour{Quiet: s.Simulate > quietNodes})...)
	}
	return all
}

// root is the certificate of the cluster's authority. Whoever only wants the names of loops has none yet.
func (s *Server) root() string {
	if s.pki == nil {
		return ""
	}
	return string(s.pki.CA().PEM)
}

// agentRoot is the bundle of the authorities that sign what agents serve with.
func (s *Server) agentRoot() string {
	if s.pki == nil {
		return ""
	}
	return string(s.pki.KubeletCA().PEM)
}

// extensionTrust is what API servers that extend this one must know to believe it.
func (s *Server) extensionTrust() extensiontrust.Trust {
	h := authn.Headers()
	t := extensiontrust.Trust{
		Clients: s.root(), Allowed: []string{pki.FrontProxyClientName}, User: h.User, UID: h.UID, Group: h.Group, Extra: h.ExtraPrefix,
	}
	if s.pki != nil {
		t.Proxies = string(s.pki.FrontProxyCA().PEM)
	}
	return t
}

// runs says that a loop shall run.
func (c *Config) runs(name string) bool {
	return len(c.Controllers) == 0 || !slices.Contains(c.Controllers, "-"+name) && (slices.Contains(c.Controllers, name) || slices.Contains(c.Controllers, "*"))
}

// checkLoops refuses names of loops that there are not.
func (c *Config) checkLoops() error {
	if len(c.Controllers) == 0 {
		return nil
	}
	names := []string{schedulerName}
	for _, ctl := range (&Server{Config: *c}).every() {
		names = append(names, ctl.Name)
	}
	slices.Sort(names)
	for _, n := range c.Controllers {
		if n = strings.TrimPrefix(n, "-"); n != "*" && !slices.Contains(names, n) {
			return fmt.Errorf("controllers: there is no %q; there are: %s", n, strings.Join(slices.Compact(names), ", "))
		}
	}
	return nil
}

// podRanges are where the networks of nodes come from. Many simulated nodes need more than the usual range has.
func (c *Config) podRanges() []ipam.Range {
	if c.Simulate > 250 && len(c.PodRanges) == 0 {
		return []ipam.Range{{CIDR: netip.MustParsePrefix("10.128.0.0/9"), NodeMask: 24}}
	}
	if len(c.PodRanges) == 0 {
		return ipam.Default()
	}
	return c.PodRanges
}

// allocatedRanges are the ranges that the allocator divides into networks of nodes: none if administrators do that themselves.
func (c *Config) allocatedRanges() []ipam.Range {
	if c.NodeCIDRsByHand {
		return nil
	}
	return c.podRanges()
}

// allocated are the ranges for the API to hold writers of Nodes to. It holds them to nothing if the allocator does not run.
func (c *Config) allocated() (out []core.PodRange) {
	if c.Loops != nil || !c.runs(ipam.Name) {
		return nil
	}
	for _, r := range c.allocatedRanges() {
		r = r.Complete()
		out = append(out, core.PodRange{CIDR: r.CIDR, NodeMask: r.NodeMask})
	}
	return out
}

// ClusterCIDRs are the networks of all Pods.
func (c *Config) ClusterCIDRs() (out []netip.Prefix) {
	for _, r := range c.podRanges() {
		out = append(out, r.CIDR)
	}
	return out
}

// quietNodes is the number of simulated nodes from which on they write no Events about Pods: those would be most of the writes.
const quietNodes = 10
