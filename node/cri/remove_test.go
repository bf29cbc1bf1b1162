package cri

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// leavingRuntime is a containerd that has left the task of a container that it did not start, and refuses to remove it until then.
type leavingRuntime struct {
	runtimev1.UnimplementedRuntimeServiceServer
	calls []string
}

func (r *leavingRuntime) RemoveContainer(context.Context, *RemoveContainerRequest) (*runtimev1.RemoveContainerResponse, error) {
	r.calls = append(r.calls, "remove")
	if !slices.Contains(r.calls, "Delete") {
		return nil, status.Error(codes.FailedPrecondition, "cannot delete running task")
	}
	return &runtimev1.RemoveContainerResponse{}, nil
}

// tasks answers containerd's own API.
func (r *leavingRuntime) tasks(_ any, stream grpc.ServerStream) error {
	request, method := &emptypb.Empty{}, grpc.ServerTransportStreamFromContext(stream.Context()).Method()
	if err := stream.RecvMsg(request); err != nil {
		return err
	}
	from, _ := metadata.FromIncomingContext(stream.Context())
	fields := string(request.ProtoReflect().GetUnknown())
	if !strings.Contains(fields, "abc") || from["containerd-namespace"][0] != "k8s.io" {
		return status.Error(codes.NotFound, fields)
	}
	r.calls = append(r.calls, strings.TrimPrefix(method, "/containerd.services.tasks.v1.Tasks/"))
	return stream.SendMsg(&emptypb.Empty{})
}

func TestRemoveContainerWithATask(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "cri.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	r := &leavingRuntime{}
	server := grpc.NewServer(grpc.UnknownServiceHandler(r.tasks))
	runtimev1.RegisterRuntimeServiceServer(server, r)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	c, err := Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.RemoveContainer(t.Context(), &RemoveContainerRequest{ContainerId: "abc"}); err != nil {
		t.Error(err)
	}
	if got := strings.Join(r.calls, " "); got != "remove Kill Delete remove" {
		t.Error(got)
	}
}
