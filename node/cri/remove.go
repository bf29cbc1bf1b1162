package cri

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RemoveContainer removes a container. When the agent dies while containerd starts a container, containerd gives up and may leave the
// task: the CRI then calls the container ended, and refuses to remove it for as long as there is a task. Its task is ended here.
func (c *Client) RemoveContainer(ctx context.Context, in *RemoveContainerRequest, opts ...grpc.CallOption) (
	*runtimev1.RemoveContainerResponse, error) {
	answer, err := c.RuntimeServiceClient.RemoveContainer(ctx, in, opts...)
	if status.Code(err) != codes.FailedPrecondition {
		return answer, err
	}
	if e := c.deleteTask(ctx, in.ContainerId); e != nil {
		return nil, errors.Join(err, e)
	}
	return c.RuntimeServiceClient.RemoveContainer(ctx, in, opts...)
}

// deleteTask kills and deletes the task of a container by containerd's own API, which listens at the same socket. It returns an error as
// long as the task has not ended, and with another runtime.
func (c *Client) deleteTask(ctx context.Context, id string) error {
	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", "k8s.io")
	call := func(method string, fields []byte) error {
		request := &emptypb.Empty{}
		request.ProtoReflect().SetUnknown(fields)
		return c.conn.Invoke(ctx, "/containerd.services.tasks.v1.Tasks/"+method, request, &emptypb.Empty{})
	}
	name := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), id)
	kill := protowire.AppendVarint(protowire.AppendTag(name, 3, protowire.VarintType), uint64(unix.SIGKILL))
	kill = protowire.AppendVarint(protowire.AppendTag(kill, 4, protowire.VarintType), 1) // all processes
	_ = call("Kill", kill)                                                               // it fails if the task has ended
	return call("Delete", name)
}
