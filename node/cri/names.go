package cri

import (
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The messages of the CRI under their own names, for packages that may not import the library.
type (
	AttachRequest                   = runtimev1.AttachRequest
	AuthConfig                      = runtimev1.AuthConfig
	CDIDevice                       = runtimev1.CDIDevice
	Capability                      = runtimev1.Capability
	Container                       = runtimev1.Container
	ContainerConfig                 = runtimev1.ContainerConfig
	ContainerEvent                  = runtimev1.ContainerEventResponse
	ContainerFilter                 = runtimev1.ContainerFilter
	ContainerMetadata               = runtimev1.ContainerMetadata
	ContainerResources              = runtimev1.ContainerResources
	ContainerState                  = runtimev1.ContainerState
	ContainerStats                  = runtimev1.ContainerStats
	ContainerStatus                 = runtimev1.ContainerStatus
	ContainerStatusRequest          = runtimev1.ContainerStatusRequest
	ContainerUser                   = runtimev1.ContainerUser
	CreateContainerRequest          = runtimev1.CreateContainerRequest
	DNSConfig                       = runtimev1.DNSConfig
	Device                          = runtimev1.Device
	ExecRequest                     = runtimev1.ExecRequest
	FilesystemUsage                 = runtimev1.FilesystemUsage
	GetEventsRequest                = runtimev1.GetEventsRequest
	HugepageLimit                   = runtimev1.HugepageLimit
	IDMapping                       = runtimev1.IDMapping
	Image                           = runtimev1.Image
	ImageFilter                     = runtimev1.ImageFilter
	ImageFsInfoRequest              = runtimev1.ImageFsInfoRequest
	ImageSpec                       = runtimev1.ImageSpec
	ImageStatusRequest              = runtimev1.ImageStatusRequest
	Int64Value                      = runtimev1.Int64Value
	KeyValue                        = runtimev1.KeyValue
	LinuxContainerConfig            = runtimev1.LinuxContainerConfig
	LinuxContainerResources         = runtimev1.LinuxContainerResources
	LinuxContainerSecurityContext   = runtimev1.LinuxContainerSecurityContext
	LinuxPodSandboxConfig           = runtimev1.LinuxPodSandboxConfig
	LinuxSandboxSecurityContext     = runtimev1.LinuxSandboxSecurityContext
	ListContainersRequest           = runtimev1.ListContainersRequest
	ListContainerStatsRequest       = runtimev1.ListContainerStatsRequest
	ListImagesRequest               = runtimev1.ListImagesRequest
	ListPodSandboxRequest           = runtimev1.ListPodSandboxRequest
	ListPodSandboxStatsRequest      = runtimev1.ListPodSandboxStatsRequest
	Mount                           = runtimev1.Mount
	MountPropagation                = runtimev1.MountPropagation
	NamespaceMode                   = runtimev1.NamespaceMode
	NamespaceOption                 = runtimev1.NamespaceOption
	PodSandbox                      = runtimev1.PodSandbox
	PodSandboxConfig                = runtimev1.PodSandboxConfig
	PodSandboxFilter                = runtimev1.PodSandboxFilter
	PodSandboxMetadata              = runtimev1.PodSandboxMetadata
	PodSandboxState                 = runtimev1.PodSandboxState
	PodSandboxStats                 = runtimev1.PodSandboxStats
	PodSandboxStatus                = runtimev1.PodSandboxStatus
	PodSandboxStatusRequest         = runtimev1.PodSandboxStatusRequest
	PortForwardRequest              = runtimev1.PortForwardRequest
	PortMapping                     = runtimev1.PortMapping
	Protocol                        = runtimev1.Protocol
	PullImageRequest                = runtimev1.PullImageRequest
	RemoveContainerRequest          = runtimev1.RemoveContainerRequest
	RemoveImageRequest              = runtimev1.RemoveImageRequest
	RemovePodSandboxRequest         = runtimev1.RemovePodSandboxRequest
	ReopenContainerLogRequest       = runtimev1.ReopenContainerLogRequest
	RunPodSandboxRequest            = runtimev1.RunPodSandboxRequest
	RuntimeCondition                = runtimev1.RuntimeCondition
	RuntimeStatus                   = runtimev1.RuntimeStatus
	SELinuxOption                   = runtimev1.SELinuxOption
	SecurityProfile                 = runtimev1.SecurityProfile
	Signal                          = runtimev1.Signal
	StartContainerRequest           = runtimev1.StartContainerRequest
	StatusRequest                   = runtimev1.StatusRequest
	StatusResponse                  = runtimev1.StatusResponse
	StopContainerRequest            = runtimev1.StopContainerRequest
	StopPodSandboxRequest           = runtimev1.StopPodSandboxRequest
	SupplementalGroupsPolicy        = runtimev1.SupplementalGroupsPolicy
	UInt64Value                     = runtimev1.UInt64Value
	UpdateContainerResourcesRequest = runtimev1.UpdateContainerResourcesRequest
	UpdateRuntimeConfigRequest      = runtimev1.UpdateRuntimeConfigRequest
	UserNamespace                   = runtimev1.UserNamespace
	VersionRequest                  = runtimev1.VersionRequest
)

// The values of its enumerations that nodes use.
const (
	ContainerCreated = runtimev1.ContainerState_CONTAINER_CREATED
	ContainerRunning = runtimev1.ContainerState_CONTAINER_RUNNING
	ContainerExited  = runtimev1.ContainerState_CONTAINER_EXITED
	ContainerUnknown = runtimev1.ContainerState_CONTAINER_UNKNOWN

	SandboxReady    = runtimev1.PodSandboxState_SANDBOX_READY
	SandboxNotReady = runtimev1.PodSandboxState_SANDBOX_NOTREADY

	NamespacePod       = runtimev1.NamespaceMode_POD
	NamespaceContainer = runtimev1.NamespaceMode_CONTAINER
	NamespaceNode      = runtimev1.NamespaceMode_NODE
	NamespaceTarget    = runtimev1.NamespaceMode_TARGET

	PropagationPrivate         = runtimev1.MountPropagation_PROPAGATION_PRIVATE
	PropagationHostToContainer = runtimev1.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
	PropagationBidirectional   = runtimev1.MountPropagation_PROPAGATION_BIDIRECTIONAL

	ProfileRuntimeDefault = runtimev1.SecurityProfile_RuntimeDefault
	ProfileUnconfined     = runtimev1.SecurityProfile_Unconfined
	ProfileLocalhost      = runtimev1.SecurityProfile_Localhost

	GroupsMerge  = runtimev1.SupplementalGroupsPolicy_Merge
	GroupsStrict = runtimev1.SupplementalGroupsPolicy_Strict

	ProtocolTCP  = runtimev1.Protocol_TCP
	ProtocolUDP  = runtimev1.Protocol_UDP
	ProtocolSCTP = runtimev1.Protocol_SCTP

	RuntimeReady = runtimev1.RuntimeReady
	NetworkReady = runtimev1.NetworkReady
)
