package cri

import (
	"context"
	"path"
	"time"

	"google.golang.org/grpc"
)

// Observer is told of each call of the runtime when it ends: the operation with the name that kubelets use in metrics, how long
// it took, and its error. Streams, such as that of the runtime's events, are not observed.
type Observer func(operation string, took time.Duration, err error)

// unaryInterceptors returns the gRPC interceptors of the observers.
func unaryInterceptors(observers []Observer) (out []grpc.UnaryClientInterceptor) {
	names := operationNames()
	for _, observe := range observers {
		out = append(out, func(
			ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			began := time.Now()
			err := call(ctx, method, req, reply, conn, opts...)
			if name, known := names[path.Base(method)]; known {
				observe(name, time.Since(began), err)
			}
			return err
		})
	}
	return out
}

// operationNames returns the names of operations in metrics, by method of the CRI.
func operationNames() map[string]string {
	return map[string]string{
		"Version": "version", "Status": "status", "UpdateRuntimeConfig": "update_runtime_config", "RuntimeConfig": "runtime_config",
		"RunPodSandbox": "run_podsandbox", "StopPodSandbox": "stop_podsandbox", "RemovePodSandbox": "remove_podsandbox",
		"PodSandboxStatus": "podsandbox_status", "ListPodSandbox": "list_podsandbox", "PodSandboxStats": "podsandbox_stats",
		"ListPodSandboxStats": "list_podsandbox_stats", "UpdatePodSandboxResources": "update_podsandbox_resources",
		"ListPodSandboxMetrics": "list_podsandbox_metrics", "ListMetricDescriptors": "list_metric_descriptors",
		"PortForward":     "port_forward",
		"CreateContainer": "create_container", "StartContainer": "start_container", "StopContainer": "stop_container",
		"RemoveContainer": "remove_container", "ListContainers": "list_containers", "ContainerStatus": "container_status",
		"UpdateContainerResources": "update_container", "ReopenContainerLog": "reopen_container_log", "ContainerStats": "container_stats",
		"ListContainerStats": "list_container_stats", "CheckpointContainer": "checkpoint_container", "CheckpointPod": "checkpoint_pod",
		"RestorePod": "restore_pod",
		"ExecSync":   "exec_sync", "Exec": "exec", "Attach": "attach",
		"ListImages": "list_images", "ImageStatus": "image_status", "PullImage": "pull_image", "RemoveImage": "remove_image",
		"ImageFsInfo": "image_fs_info",
	}
}
