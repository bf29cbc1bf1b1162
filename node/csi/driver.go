package csi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/version"

	"proa.dev/node/plugin"
)

// driver is a driver that can be called.
type driver struct {
	name string
	conn *grpc.ClientConn
	spec.NodeClient

	// mu guards can, which is asked for once.
	mu  sync.Mutex
	can map[spec.NodeServiceCapability_RPC_Type]bool
}

// supported says whether a driver speaks a version that we speak: any 1.x.
func supported(i plugin.Info) error {
	for _, text := range i.Versions {
		if v, err := version.ParseGeneric(text); err == nil && v.Major() == 1 {
			return nil
		}
	}
	return fmt.Errorf("validation failed for CSI Driver %s at endpoint %s: none of the versions specified %q are supported", i.Name, i.Endpoint, i.Versions)
}

func dial(name, endpoint string) (*driver, error) {
	conn, err := grpc.NewClient("unix://"+strings.TrimPrefix(endpoint, "unix://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("open the CSI driver %s: %w", name, err)
	}
	return &driver{name: name, conn: conn, NodeClient: spec.NewNodeClient(conn)}, nil
}

func (d *driver) close() error { return d.conn.Close() }

// does says whether a driver has a capability.
func (d *driver) does(ctx context.Context, what spec.NodeServiceCapability_RPC_Type) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.can == nil {
		got, err := d.NodeGetCapabilities(ctx, &spec.NodeGetCapabilitiesRequest{})
		if err != nil {
			return false, err
		}
		d.can = map[spec.NodeServiceCapability_RPC_Type]bool{}
		for _, c := range got.GetCapabilities() {
			d.can[c.GetRpc().GetType()] = true
		}
	}
	return d.can[what], nil
}

// info is what a driver says about the node.
func (d *driver) info(ctx context.Context) (*spec.NodeGetInfoResponse, error) {
	got, err := d.NodeGetInfo(ctx, &spec.NodeGetInfoRequest{})
	if err != nil {
		return nil, err
	}
	if got.GetNodeId() == "" {
		return nil, errors.New("error adding CSI driver node info: driverNodeID must not be empty")
	}
	return got, nil
}

// final says that after this error nothing is going on in the driver. Other errors leave that open.
func final(err error) bool {
	s, ok := status.FromError(err)
	if !ok {
		return false
	}
	switch s.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return false
	}
	return true
}

// infeasible says that it makes no sense to ask again.
func infeasible(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.OutOfRange, codes.NotFound:
		return true
	}
	return false
}
