package run

import (
	"crypto"
	"crypto/x509"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/control"
	"proa.dev/control/apiservice"
	"proa.dev/control/availablecondition"
	"proa.dev/control/bootstraptoken"
	"proa.dev/control/certificate"
	"proa.dev/control/cloud"
	"proa.dev/control/clusterrole"
	"proa.dev/control/clustersettings"
	"proa.dev/control/cronjob"
	"proa.dev/control/customresourcedefinition"
	"proa.dev/control/daemonset"
	"proa.dev/control/deployment"
	"proa.dev/control/devicetaint"
	"proa.dev/control/disruption"
	"proa.dev/control/endpoints"
	"proa.dev/control/endpointslice"
	"proa.dev/control/endpointslicemirroring"
	"proa.dev/control/ephemeralvolume"
	"proa.dev/control/extensiontrust"
	"proa.dev/control/flowconfig"
	"proa.dev/control/foreignendpoints"
	"proa.dev/control/garbagecollector"
	"proa.dev/control/ipam"
	"proa.dev/control/job"
	"proa.dev/control/localpath"
	"proa.dev/control/namespace"
	"proa.dev/control/nodelifecycle"
	"proa.dev/control/nodettl"
	"proa.dev/control/persistentvolume"
	"proa.dev/control/podautoscaler"
	"proa.dev/control/podcertificate"
	"proa.dev/control/podgc"
	"proa.dev/control/policystatus"
	"proa.dev/control/quota"
	"proa.dev/control/replicaset"
	"proa.dev/control/resourceclaim"
	"proa.dev/control/rootca"
	"proa.dev/control/serviceaccount"
	"proa.dev/control/serviceaccounttoken"
	"proa.dev/control/servicecidr"
	"proa.dev/control/statefulset"
	"proa.dev/control/storageversion"
	"proa.dev/control/tainteviction"
	"proa.dev/control/trustbundle"
	"proa.dev/control/ttlafterfinished"
	"proa.dev/control/volumeattach"
	"proa.dev/control/volumeexpand"
	"proa.dev/control/volumeprotection"
	"proa.dev/node/simulate"
	"proa.dev/run/pki"
	"proa.dev/run/servedresources"
	"proa.dev/run/settings"
	"proa.dev/server/authn"
	"proa.dev/server/authz"
)

// controllers returns the controllers that this server runs.
func (s *Server) controllers() []control.Controller {
	all := slices.DeleteFunc(s.allControllers(), func(c control.Controller) bool { return !s.RunsController(c.Name) })
	if s.FilterControllers != nil {
		all = s.FilterControllers(all)
	}
	return all
}

// allControllers lists all controllers of the control plane. A new one is added here.
func (s *Server) allControllers() []control.Controller {
	emptied, counted := servedresources.EmptiedVerbs(), servedresources.CountedVerbs()
	all := append(volumeprotection.Controllers(),
		serviceaccount.Controller(),
		rootca.Controller(s.clusterAuthorities),
		extensiontrust.Controller(s.extensionTrust),
		clustersettings.Controller(s.SharedSettings),
		clusterrole.Controller(authz.Aggregate),
		namespace.Controller(namespace.Config{
			Resources: s.builtInResources(emptied), Custom: s.withAggregated(s.onlyOccupied(s.customResources(emptied))),
			Open: s.viewOpener("namespace-controller"), Undiscovered: s.aggregated().Undiscovered,
		}),
		s.aggregated().Follow(garbagecollector.New(garbagecollector.Resources(s.allResources)).With(s.occupancy()).Controller()),

		nodelifecycle.Controller(nodelifecycle.Config{}),
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
		ttlafterfinished.Controller(),
		disruption.Controller(s.scalable),
		s.aggregated().Follow(quota.Controller(s.builtInResources(counted), s.withAggregated(s.customResources(counted)))),
		podautoscaler.Controller(s.autoscalerMetrics(), s.resourcesOfKind, podautoscaler.Options{}),

		endpointslice.Controller(),
		endpoints.Controller(),
		endpointslicemirroring.Controller(),
		foreignendpoints.Controller(),
		servicecidr.Controller(),

		ephemeralvolume.Controller(),
		certificate.Controller(certificate.Config{
			CA:        func() (*x509.Certificate, crypto.Signer) { return s.pki.CA().Cert, s.pki.CA().Key },
			KubeletCA: func() (*x509.Certificate, crypto.Signer) { return s.pki.KubeletCA().Cert, s.pki.KubeletCA().Key },
			Reserved:  s.reservedAddresses(),
		}),
		trustbundle.APIServer(s.clusterAuthorities),
		trustbundle.Agents(s.agentAuthorities),
		serviceaccounttoken.Tokens(func(a *corev1.ServiceAccount, secret string) (string, error) { return s.auth.IssueLegacy(a, secret) },
			s.clusterAuthorities),
		serviceaccounttoken.Tracker(),
		bootstraptoken.Signer(),
		bootstraptoken.Cleaner(),
		podcertificate.Controller(),
		availablecondition.APIServices(),
		availablecondition.Aggregated(s.checkAPIService),
		apiservice.Controller(s.builtInAPIServices),
		availablecondition.FlowSchemas(),
		policystatus.Controller(s.typeCheck),
		volumeexpand.Controller(),
		volumeattach.Controller(volumeattach.Config{}),
		serviceaccounttoken.Cleaner(serviceaccounttoken.DefaultCleanUp),
		ipam.Controller(s.AllocatedRanges()),
	)
	all = append(all, cloud.Controllers(s.loadBalancer(), s.ClusterCIDRs())...)
	all = append(all, customresourcedefinition.Controllers(s.isBuiltIn)...)
	all = append(all, persistentvolume.Controllers(persistentvolume.Config{})...)
	all = append(all, resourceclaim.Controllers()...)
	all = append(all, devicetaint.Controllers()...)
	all = append(all, localpath.Controllers()...)
	all = append(all, flowconfig.Controllers()...)
	if s.FeatureEnabled(settings.StorageVersionMigration) {
		all = append(all, storageversion.Controller(s.state.Def))
	}
	if s.Simulate > 0 {
		all = append(all, simulate.Controllers(simulate.Behaviour{Quiet: s.Simulate > maxNodesWithEvents})...)
	}
	return all
}

// clusterAuthorities returns the bundle of the cluster's certificate authorities; empty if only the names of controllers are wanted.
func (s *Server) clusterAuthorities() string {
	if s.pki == nil {
		return ""
	}
	return string(s.pki.CA().PEM)
}

// agentAuthorities returns the bundle of the authorities that sign the serving certificates of agents.
func (s *Server) agentAuthorities() string {
	if s.pki == nil {
		return ""
	}
	return string(s.pki.KubeletCA().PEM)
}

// extensionTrust returns what aggregated API servers need to authenticate requests that this server proxies.
func (s *Server) extensionTrust() extensiontrust.Trust {
	h := authn.Headers()
	t := extensiontrust.Trust{
		Clients: s.clusterAuthorities(), Allowed: []string{pki.FrontProxyClientName}, User: h.User, UID: h.UID, Group: h.Group,
		Extra: h.ExtraPrefix,
	}
	if s.pki != nil {
		t.Proxies = string(s.pki.FrontProxyCA().PEM)
	}
	return t
}

// maxNodesWithEvents is the number of simulated nodes above which they write no Events about Pods, which would be most of the
// writes.
const maxNodesWithEvents = 10
