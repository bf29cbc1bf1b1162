// Package gr has the names of the resources that several parts of the system use.
package gr

import "k8s.io/apimachinery/pkg/runtime/schema"

// The resources, by their names.
var (
	ConfigMaps             = core("configmaps")
	Endpoints              = core("endpoints")
	Events                 = core("events")
	LimitRanges            = core("limitranges")
	Namespaces             = core("namespaces")
	Nodes                  = core("nodes")
	PersistentVolumeClaims = core("persistentvolumeclaims")
	PersistentVolumes      = core("persistentvolumes")
	Pods                   = core("pods")
	PodTemplates           = core("podtemplates")
	ReplicationControllers = core("replicationcontrollers")
	ResourceQuotas         = core("resourcequotas")
	Secrets                = core("secrets")
	ServiceAccounts        = core("serviceaccounts")
	Services               = core("services")

	ControllerRevisions = apps("controllerrevisions")
	DaemonSets          = apps("daemonsets")
	Deployments         = apps("deployments")
	ReplicaSets         = apps("replicasets")
	StatefulSets        = apps("statefulsets")

	CronJobs = schema.GroupResource{Group: "batch", Resource: "cronjobs"}
	Jobs     = schema.GroupResource{Group: "batch", Resource: "jobs"}

	HorizontalPodAutoscalers = schema.GroupResource{Group: "autoscaling", Resource: "horizontalpodautoscalers"}
	PodDisruptionBudgets     = schema.GroupResource{Group: "policy", Resource: "poddisruptionbudgets"}
	EndpointSlices           = schema.GroupResource{Group: "discovery.k8s.io", Resource: "endpointslices"}
	Leases                   = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	PriorityClasses          = schema.GroupResource{Group: "scheduling.k8s.io", Resource: "priorityclasses"}
	RuntimeClasses           = schema.GroupResource{Group: "node.k8s.io", Resource: "runtimeclasses"}

	ClusterRoles        = rbac("clusterroles")
	ClusterRoleBindings = rbac("clusterrolebindings")
	Roles               = rbac("roles")
	RoleBindings        = rbac("rolebindings")

	IPAddresses     = schema.GroupResource{Group: "networking.k8s.io", Resource: "ipaddresses"}
	ServiceCIDRs    = schema.GroupResource{Group: "networking.k8s.io", Resource: "servicecidrs"}
	NetworkPolicies = schema.GroupResource{Group: "networking.k8s.io", Resource: "networkpolicies"}

	CertificateSigningRequests = schema.GroupResource{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}
	ClusterTrustBundles        = schema.GroupResource{Group: "certificates.k8s.io", Resource: "clustertrustbundles"}
	PodCertificateRequests     = schema.GroupResource{Group: "certificates.k8s.io", Resource: "podcertificaterequests"}

	CSIDrivers              = storage("csidrivers")
	CSINodes                = storage("csinodes")
	CSIStorageCapacities    = storage("csistoragecapacities")
	StorageClasses          = storage("storageclasses")
	VolumeAttachments       = storage("volumeattachments")
	VolumeAttributesClasses = storage("volumeattributesclasses")

	DeviceClasses          = dra("deviceclasses")
	ResourceClaims         = dra("resourceclaims")
	ResourceClaimTemplates = dra("resourceclaimtemplates")
	ResourceSlices         = dra("resourceslices")

	APIServices                 = schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"}
	CustomResourceDefinitions   = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	FlowSchemas                 = schema.GroupResource{Group: "flowcontrol.apiserver.k8s.io", Resource: "flowschemas"}
	PriorityLevelConfigurations = schema.GroupResource{Group: "flowcontrol.apiserver.k8s.io", Resource: "prioritylevelconfigurations"}
	StorageVersionMigrations    = schema.GroupResource{Group: "storagemigration.k8s.io", Resource: "storageversionmigrations"}

	PodMetrics = schema.GroupResource{Group: "metrics.k8s.io", Resource: "pods"}

	SubjectAccessReviews = schema.GroupResource{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}
	TokenReviews         = schema.GroupResource{Group: "authentication.k8s.io", Resource: "tokenreviews"}

	ValidatingAdmissionPolicies = schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"}
)

func core(name string) schema.GroupResource { return schema.GroupResource{Resource: name} }

func apps(name string) schema.GroupResource {
	return schema.GroupResource{Group: "apps", Resource: name}
}

func rbac(name string) schema.GroupResource {
	return schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: name}
}

func storage(name string) schema.GroupResource {
	return schema.GroupResource{Group: "storage.k8s.io", Resource: name}
}

func dra(name string) schema.GroupResource {
	return schema.GroupResource{Group: "resource.k8s.io", Resource: name}
}
