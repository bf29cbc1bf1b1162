package cri

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// fakeRuntime answers Version, and refuses every other call.
type fakeRuntime struct {
	runtimev1.UnimplementedRuntimeServiceServer
}

func (fakeRuntime) Version(context.Context, *runtimev1.VersionRequest) (*runtimev1.VersionResponse, error) {
	return &runtimev1.VersionResponse{RuntimeName: "fake"}, nil
}

func TestObserver(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "cri.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runtimev1.RegisterRuntimeServiceServer(server, fakeRuntime{})
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	type call struct {
		name   string
		failed bool
	}
	var seen []call
	c, err := Dial(socket, func(name string, took time.Duration, err error) {
		if took <= 0 {
			t.Errorf("%s took %v", name, took)
		}
		seen = append(seen, call{name, err != nil})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Version(t.Context(), &VersionRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.UpdateContainerResources(t.Context(), &runtimev1.UpdateContainerResourcesRequest{}); err == nil {
		t.Error("an unimplemented call succeeds")
	}
	if len(seen) != 2 || seen[0] != (call{"version", false}) || seen[1] != (call{"update_container", true}) {
		t.Errorf("%+v", seen)
	}
}

func TestEveryMethodHasAName(t *testing.T) {
	names := operationNames()
	for _, d := range []grpc.ServiceDesc{runtimev1.RuntimeService_ServiceDesc, runtimev1.ImageService_ServiceDesc} {
		for _, m := range d.Methods {
			if names[m.MethodName] == "" {
				t.Errorf("%s has no name", m.MethodName)
			}
		}
	}
}
