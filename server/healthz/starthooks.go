package healthz

// StartHooks returns the names under which upstream's API server tells that the parts of its start are done, as far as this
// server has these parts. Here they are done together: the server is started when all of them are.
func StartHooks() []string {
	const hook = "poststarthook/"
	return []string{
		hook + "start-apiserver-admission-initializer", hook + "generic-apiserver-start-informers",
		hook + "priority-and-fairness-config-consumer", hook + "priority-and-fairness-filter",
		hook + "start-apiextensions-informers", hook + "start-apiextensions-controllers", hook + "crd-informer-synced",
		hook + "start-system-namespaces-controller", hook + "start-cluster-authentication-info-controller",
		hook + "storage-readiness", hook + "start-legacy-token-tracking-controller",
		hook + "rbac/bootstrap-roles", hook + "scheduling/bootstrap-system-priority-classes",
		hook + "priority-and-fairness-config-producer", hook + "bootstrap-controller",
		hook + "start-kubernetes-service-cidr-controller",
		hook + "start-service-ip-repair-controllers", hook + "aggregator-reload-proxy-client-cert",
		hook + "start-kube-aggregator-informers", hook + "apiservice-status-local-available-controller",
		hook + "apiservice-status-remote-available-controller", hook + "apiservice-registration-controller",
		hook + "apiservice-discovery-controller", hook + "kube-apiserver-autoregistration", "autoregister-completion",
		hook + "apiservice-openapi-controller", hook + "apiservice-openapiv3-controller",
	}
}
