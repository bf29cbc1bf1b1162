package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ExecURL is where the runtime serves the streams of a command, for a short while and once.
func (c *Client) ExecURL(ctx context.Context, r *ExecRequest) (string, error) {
	out, err := c.Exec(ctx, r)
	if err != nil {
		return "", err
	}
	return out.Url, nil
}

// AttachURL is where the runtime serves the streams of a container, for a short while and once.
func (c *Client) AttachURL(ctx context.Context, r *AttachRequest) (string, error) {
	out, err := c.Attach(ctx, r)
	if err != nil {
		return "", err
	}
	return out.Url, nil
}

// LogPath is where the runtime writes the log of a container.
func (c *Client) LogPath(ctx context.Context, id string) (string, error) {
	out, err := c.ContainerStatus(ctx, &ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return "", err
	}
	return out.GetStatus().GetLogPath(), nil
}

// ReopenLog makes the runtime write the log of a container to a new file.
func (c *Client) ReopenLog(ctx context.Context, id string) error {
	_, err := c.ReopenContainerLog(ctx, &ReopenContainerLogRequest{ContainerId: id})
	return err
}

// NetworkNamespace is the file of the network namespace of a sandbox.
func (c *Client) NetworkNamespace(ctx context.Context, sandbox string) (string, error) {
	out, err := c.PodSandboxStatus(ctx, &runtimev1.PodSandboxStatusRequest{PodSandboxId: sandbox, Verbose: true})
	if err != nil {
		return "", err
	}
	return namespaceOf(out.Info)
}

// namespaceOf reads what runtimes say of a sandbox beyond the protocol: containerd and CRI-O tell its process, and containerd
// also the namespaces it was given.
func namespaceOf(info map[string]string) (string, error) {
	var said struct {
		PID  int `json:"pid"`
		Spec struct {
			Linux struct {
				Namespaces []struct{ Type, Path string } `json:"namespaces"`
			} `json:"linux"`
		} `json:"runtimeSpec"`
	}
	if err := json.Unmarshal([]byte(info["info"]), &said); err != nil {
		return "", fmt.Errorf("read what the runtime says of a sandbox: %w", err)
	}
	for _, n := range said.Spec.Linux.Namespaces {
		if n.Type == "network" && n.Path != "" {
			return n.Path, nil
		}
	}
	if said.PID <= 0 {
		return "", errors.New("the runtime does not say where the network of a sandbox is")
	}
	return fmt.Sprintf("/proc/%d/ns/net", said.PID), nil
}
