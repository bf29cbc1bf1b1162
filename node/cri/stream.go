package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ExecURL returns where the runtime serves the streams of a command, for a short time and once.
func (c *Client) ExecURL(ctx context.Context, r *ExecRequest) (string, error) {
	out, err := c.Exec(ctx, r)
	if err != nil {
		return "", err
	}
	return out.Url, nil
}

// AttachURL returns where the runtime serves the streams of a container, for a short time and once.
func (c *Client) AttachURL(ctx context.Context, r *AttachRequest) (string, error) {
	out, err := c.Attach(ctx, r)
	if err != nil {
		return "", err
	}
	return out.Url, nil
}

// LogPath returns where the runtime writes the log of a container.
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

// NetworkNamespace returns the file of the network namespace of a sandbox.
func (c *Client) NetworkNamespace(ctx context.Context, sandbox string) (string, error) {
	out, err := c.PodSandboxStatus(ctx, &runtimev1.PodSandboxStatusRequest{PodSandboxId: sandbox, Verbose: true})
	if err != nil {
		return "", err
	}
	return namespaceOf(out.Info)
}

// namespaceOf reads the verbose status of a sandbox, which is not part of the protocol: containerd and CRI-O report its
// process, and containerd also its namespaces.
func namespaceOf(info map[string]string) (string, error) {
	var status struct {
		PID  int `json:"pid"`
		Spec struct {
			Linux struct {
				Namespaces []struct{ Type, Path string } `json:"namespaces"`
			} `json:"linux"`
		} `json:"runtimeSpec"`
	}
	if err := json.Unmarshal([]byte(info["info"]), &status); err != nil {
		return "", fmt.Errorf("read what the runtime says of a sandbox: %w", err)
	}
	for _, n := range status.Spec.Linux.Namespaces {
		if n.Type == "network" && n.Path != "" {
			return n.Path, nil
		}
	}
	if status.PID <= 0 {
		return "", errors.New("the runtime does not say where the network of a sandbox is")
	}
	return fmt.Sprintf("/proc/%d/ns/net", status.PID), nil
}
